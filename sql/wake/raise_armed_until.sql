-- Announce until when a worker may be armed, before the flag itself is committed.
-- Called by: arm, prune. Locks: a row of messages.mutex: two sessions that raise it at once must not undo each other.
-- It is released at once by rolling back the savepoint in which it was taken, which a setval survives: a session that
-- arms and does not commit blocks no other. Until the flag is committed, the writer's lock on messages.sleeper keeps
-- lower_armed_until away.
-- Errors: 55P03 if the row is not free within a second; no session holds it for longer than this function takes.
-- Never lowers it: that is for lower_armed_until alone.
CREATE OR REPLACE FUNCTION messages.raise_armed_until(p_until timestamptz)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_until bigint := ceil(extract(epoch FROM p_until))::bigint;
BEGIN
  IF pg_sequence_last_value('messages.armed_until') >= v_until THEN
    RETURN;
  END IF;
  BEGIN
    IF NOT messages.lock_mutex('armed', '', '1s') THEN
      RAISE EXCEPTION 'another session has held the lock of messages.armed_until for a second' USING ERRCODE = '55P03';
    END IF;
    IF pg_sequence_last_value('messages.armed_until') < v_until THEN
      PERFORM setval('messages.armed_until', v_until);
    END IF;
    RAISE EXCEPTION 'done' USING ERRCODE = 'PGR00';
  EXCEPTION WHEN SQLSTATE 'PGR00' THEN
    NULL;
  END;
END
$$;
