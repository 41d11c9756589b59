-- Lock a limited topic, so that claims of it count one after the other.
-- Called by: topic_room. Locks: the topic's row of messages.mutex until the transaction ends. The first one of a transaction is waited for, for as
-- long as a few claims take and no longer: who claims and does not commit must not keep others from all of their topics. With one in hand
-- the next are only tried, so that two claims never wait for each other. Result: whether it was got.
CREATE OR REPLACE FUNCTION messages.lock_topic(p_topic text)
RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
  IF NOT messages.lock_mutex('topic', p_topic, CASE WHEN current_setting('messages.holds_topic', true) = 'yes' THEN NULL ELSE '250ms' END) THEN
    RETURN false;
  END IF;
  PERFORM set_config('messages.holds_topic', 'yes', true);
  RETURN true;
END
$$;
