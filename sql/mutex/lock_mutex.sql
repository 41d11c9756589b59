-- Lock a row of messages.mutex, so that one transaction at a time does what it stands for.
-- Called by: tick, watch, note_place, note_channels, raise_armed, lock_topic, wait_mutex. p_wait: how long it waits for whoever has it, as
-- lock_timeout takes it; NULL = not at all.
-- Locks: the row until the transaction ends (or the savepoint that it was taken in is undone). The row is never updated: it can be had above
-- READ COMMITTED too. One that is not there is made; somebody who makes it at the same moment has it.
-- Like an advisory lock it is free once what its holder did can be seen: a transaction ends for locks and snapshots at one moment.
-- Result: whether it was got.
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
