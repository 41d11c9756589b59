-- Lock a row of messages.mutex, so that only one transaction at a time does the work that it names.
-- Called by: tick, update_conditions, update_breaker, add_low_water, create_channel_rates, raise_armed_until,
-- lock_topic, wait_mutex, signal, load_events, wait_for_event. p_wait: how long to wait for the row, in the format of
-- lock_timeout; NULL = not at all.
-- Locks: the row until the transaction ends (or the savepoint that it was taken in is undone). The row is never
-- updated, so it can also be locked above READ COMMITTED. A missing row is created; a session that creates it at the
-- same moment holds it. Like an advisory lock it is free once the holder's changes are visible: a transaction ends for
-- locks and snapshots at the same moment.
-- Result: whether the lock was taken.
CREATE OR REPLACE FUNCTION messages.lock_mutex(p_kind text, p_name text DEFAULT '', p_wait text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  v_timeout text := current_setting('lock_timeout');
BEGIN
  PERFORM FROM messages.mutex AS x WHERE x.kind = p_kind AND x.name = p_name FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    RETURN true;
  END IF;
  IF p_wait IS NULL AND EXISTS (SELECT FROM messages.mutex AS x WHERE x.kind = p_kind AND x.name = p_name) THEN
    RETURN false;
  END IF;
  -- If it is undone, so is the timeout.
  BEGIN
    PERFORM set_config('lock_timeout', coalesce(p_wait, '1ms'), true);
    LOOP
      PERFORM FROM messages.mutex AS x WHERE x.kind = p_kind AND x.name = p_name FOR UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO messages.mutex (kind, name) VALUES (p_kind, p_name) ON CONFLICT DO NOTHING;
    END LOOP;
    PERFORM set_config('lock_timeout', v_timeout, true);
    RETURN true;
  EXCEPTION WHEN lock_not_available THEN
    RETURN false;
  END;
END
$$;
