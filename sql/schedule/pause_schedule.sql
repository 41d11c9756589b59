-- Stops a schedule until it is resumed. Its ticks during the pause do not count as missed: they never happen. Pausing a
-- schedule that is already paused replaces the user and the reason.
--
-- Result: whether it was running.
-- Errors: 22023 for a schedule that does not exist.
-- Locks: the row of the schedule.
-- Repeat: safe.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.pause_schedule(p_name text, p_reason text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_since timestamptz;
BEGIN
  SELECT s.paused_at INTO v_since FROM messages.schedule AS s WHERE s.name = p_name FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no schedule %', coalesce('"' || p_name || '"', 'NULL')
      USING ERRCODE = '22023', HINT = 'see messages.schedule for those there are';
  END IF;
  UPDATE messages.schedule AS s
  SET paused_at = coalesce(v_since, messages.now()), paused_by = messages.actor(), paused_reason = p_reason
  WHERE s.name = p_name;
  RETURN v_since IS NULL;
END
$$;
