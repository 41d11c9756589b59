-- Lock a limited topic, so that claims of it count one after the other.
-- Called by: topic_room. Locks: the topic's advisory lock until the transaction ends. The first one of a transaction is waited for, for as
-- long as a few claims take and no longer: who claims and does not commit must not keep others from all of their topics. With one in hand
-- the next are only tried, so that two claims never wait for each other. Result: whether it was got.
CREATE OR REPLACE FUNCTION messages.lock_topic(p_topic text)
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  v_lock    bigint := hashtextextended('messages.topic ' || p_topic, 0);
  v_timeout text   := current_setting('lock_timeout');
BEGIN
  IF NOT pg_try_advisory_xact_lock(v_lock) THEN
    IF current_setting('messages.holds_topic', true) = 'yes' THEN
      RETURN false;
    END IF;
    BEGIN
      PERFORM set_config('lock_timeout', '250ms', true);
      PERFORM pg_advisory_xact_lock(v_lock);
      PERFORM set_config('lock_timeout', v_timeout, true);
    EXCEPTION WHEN lock_not_available THEN
      RETURN false;
    END;
  END IF;
  PERFORM set_config('messages.holds_topic', 'yes', true);
  RETURN true;
END
$$;
