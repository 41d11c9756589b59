-- Find the problem of a cron expression, and how to fix it.
-- Called by: the trigger of messages.schedule. Locks: nothing. Result: problem NULL = it is valid, and has a tick in the future.
CREATE OR REPLACE FUNCTION messages.check_cron(p_cron text, OUT problem text, OUT hint text)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_cron record := messages.parse_cron(p_cron);
BEGIN
  problem := v_cron.problem;
  hint := v_cron.hint;
  IF problem IS NULL AND messages.next_tick(p_cron, 'UTC', messages.now()) IS NULL THEN
    problem := format('expression is "%s", a day that never comes', p_cron);
    hint := 'use a day that the month has, or L for the last one';
  END IF;
END
$$;
