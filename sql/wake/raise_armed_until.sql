-- Let publishes know until when somebody may be armed, before the flag itself is committed.
-- Called by: arm, topic_changed, prune. Locks: a row of messages.mutex: two that raise it at once must not undo each other. It is given back at
-- once, by undoing the savepoint in which it was taken, which a setval survives: whoever arms and does not commit keeps nobody from arming.
-- Until the flag is committed lower_armed is kept away by the lock on messages.sleeper which whoever wrote the flag has.
-- Errors: 55P03 if the row cannot be had for a second; nobody holds it for longer than this function takes.
-- Never lowers it: that is for lower_armed alone.
CREATE OR REPLACE FUNCTION messages.raise_armed(p_until timestamptz)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_until bigint := ceil(extract(epoch FROM p_until))::bigint;
BEGIN
  IF pg_sequence_last_value('messages.armed') >= v_until THEN
    RETURN;
  END IF;
  BEGIN
    IF NOT messages.lock_mutex('armed', '', '1s') THEN
      RAISE EXCEPTION 'somebody has raised messages.armed for a second' USING ERRCODE = '55P03';
    END IF;
    IF pg_sequence_last_value('messages.armed') < v_until THEN
      PERFORM setval('messages.armed', v_until);
    END IF;
    RAISE EXCEPTION 'done' USING ERRCODE = 'PGR00';
  EXCEPTION WHEN SQLSTATE 'PGR00' THEN
    NULL;
  END;
END
$$;
