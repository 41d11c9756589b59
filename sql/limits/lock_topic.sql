-- Lock a limited topic, so that claims count it one after the other.
-- Called by: topic_slots. Locks: the topic's row of messages.mutex until the transaction ends. The first lock of a transaction is waited
-- for, about as long as a few claims take: a session that claims and does not commit must not block the other topics of others. After the
-- first, further locks are only tried, so that two claims never wait for each other. Result: whether the lock was taken.
CREATE OR REPLACE FUNCTION messages.lock_topic(p_topic text)
RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
  IF NOT messages.lock_mutex('topic', p_topic, CASE WHEN current_setting('messages.has_topic_lock', true) = 'yes' THEN NULL ELSE '250ms' END) THEN
    RETURN false;
  END IF;
  PERFORM set_config('messages.has_topic_lock', 'yes', true);
  RETURN true;
END
$$;
