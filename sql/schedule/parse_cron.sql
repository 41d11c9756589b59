-- Parse a cron expression: five fields (minute, hour, day of month, month, day of week), six with the second before
-- them, a name like @daily, or "30 seconds".
-- Called by: next_tick, check_cron. Locks: nothing. Result: problem NULL = it can be read. Of an interval only seconds
-- is set, else: fields: the bits of each of the six fields; both_days: a day must match day of month and day of week,
-- else one of them is enough (as in Vixie cron: both if one of the two begins with a star); wild: second, minute or
-- hour begins with a star, so that it follows the hours that pass, not the wall clock.
CREATE OR REPLACE FUNCTION messages.parse_cron(
  p_cron text, OUT seconds integer, OUT fields bigint[], OUT both_days boolean, OUT wild boolean, OUT problem text,
  OUT hint text
)
LANGUAGE plpgsql
IMMUTABLE
AS $$
DECLARE
  v_settings constant text[] := '{second,minute,hour,day of month,month,day of week}'::text[];
  v_text  text := lower(btrim(regexp_replace(coalesce(p_cron, ''), E'\\s+', ' ', 'g')) COLLATE "C");
  v_parts text[];
  v_field record;
BEGIN
  IF v_text ~ E'^\\d{1,5} ?(s|sec|secs|second|seconds)$' THEN
    seconds := substring(v_text FROM E'^\\d+')::integer;
    IF seconds NOT BETWEEN 1 AND 86400 THEN
      problem := format('interval is "%s"', p_cron);
      hint := 'use 1 seconds to 86400 seconds';
    END IF;
    RETURN;
  END IF;

  v_text := CASE v_text
    WHEN '@yearly' THEN '0 0 1 1 *'
    WHEN '@annually' THEN '0 0 1 1 *'
    WHEN '@monthly' THEN '0 0 1 * *'
    WHEN '@weekly' THEN '0 0 * * 0'
    WHEN '@daily' THEN '0 0 * * *'
    WHEN '@midnight' THEN '0 0 * * *'
    WHEN '@hourly' THEN '0 * * * *'
    ELSE v_text END;
  v_parts := string_to_array(v_text, ' ');
  IF v_text LIKE '@%' OR coalesce(cardinality(v_parts), 0) NOT IN (5, 6) OR length(v_text) > 1000 THEN
    problem := format('expression is "%s"', left(p_cron, 100));
    hint := 'use five fields (minute hour day-of-month month day-of-week), six with the second before them, @hourly, '
      '@daily, @weekly, @monthly, @yearly, or an interval like "30 seconds"';
    RETURN;
  END IF;
  IF cardinality(v_parts) = 5 THEN
    v_parts := array_prepend('0', v_parts);
  END IF;

  FOR v_place IN 1..6 LOOP
    v_field := messages.parse_cron_field(v_settings[v_place], v_parts[v_place]);
    IF v_field.problem IS NOT NULL THEN
      problem := v_field.problem;
      hint := v_field.hint;
      RETURN;
    END IF;
    fields := fields || v_field.bits;
  END LOOP;
  both_days := v_parts[4] LIKE '*%' OR v_parts[6] LIKE '*%';
  wild := v_parts[1] LIKE '*%' OR v_parts[2] LIKE '*%' OR v_parts[3] LIKE '*%';
END
$$;
