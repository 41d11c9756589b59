-- Returns when a cron expression ticks, so that you can check it before you rely on it. `p_after` NULL: from now on.
--
-- Result: at most `p_count` (1 to 1000) ticks, ordered by time; none for a day that never comes.
-- Errors: 22023 for an invalid expression, or a time zone that a schedule (`messages.schedule`) may not have; the hint
-- is the fix.
-- Locks: none.
-- Repeat: safe.
-- Called by: operators, `pgrouse schedule`, the start of a daemon and `pgrouse config check`, which check the schedules
-- of a configuration.
CREATE OR REPLACE FUNCTION messages.next_ticks(
  p_cron text, p_time_zone text DEFAULT 'UTC', p_count integer DEFAULT 5, p_after timestamptz DEFAULT NULL
)
RETURNS SETOF timestamptz
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_tick    timestamptz := coalesce(p_after, messages.now());
  v_problem text;
  v_hint    text;
BEGIN
  IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 1000 THEN
    RAISE EXCEPTION 'count of next_ticks is %', coalesce(p_count::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 1000';
  END IF;
  SELECT z.problem, z.hint INTO v_problem, v_hint FROM messages.check_time_zone(p_time_zone) AS z;
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION 'time_zone %', v_problem USING ERRCODE = '22023', HINT = v_hint;
  END IF;
  FOR v_place IN 1..p_count LOOP
    v_tick := messages.next_tick(p_cron, p_time_zone, v_tick);
    EXIT WHEN v_tick IS NULL;
    RETURN NEXT v_tick;
  END LOOP;
END
$$;
