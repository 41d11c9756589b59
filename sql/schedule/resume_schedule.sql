-- Ends a pause: the schedule continues with the first tick from now on.
--
-- Result: whether it was paused.
-- Errors: 22023 for a schedule that does not exist.
-- Locks: the row of the schedule.
-- Repeat: safe.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.resume_schedule(p_name text)
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
  UPDATE messages.schedule AS s SET paused_at = NULL, paused_by = NULL, paused_reason = NULL
  WHERE s.name = p_name AND s.paused_at IS NOT NULL;
  RETURN v_since IS NOT NULL;
END
$$;
