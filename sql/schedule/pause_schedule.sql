-- Pause a schedule until it is resumed. Ticks during the pause do not count as missed.
-- Called by: operators. Pausing what is already paused replaces who and why; its beginning stays. Locks: the row of the schedule.
-- Result: whether it was running. Errors: 22023 for an unknown schedule.
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
    RAISE EXCEPTION 'there is no schedule %', coalesce('"' || p_name || '"', 'NULL') USING ERRCODE = '22023', HINT = 'see messages.schedule for those there are';
  END IF;
  UPDATE messages.schedule AS s
  SET paused_at = coalesce(v_since, messages.now()), paused_by = messages.actor(), paused_reason = p_reason
  WHERE s.name = p_name;
  RETURN v_since IS NULL;
END
$$;
