-- Returns what is wrong with a breaker policy, and how to fix it.
--
-- Result: `problem` NULL = it is valid.
-- Errors: none.
-- Locks: none.
-- Called by: the trigger of messages.topic.
CREATE OR REPLACE FUNCTION messages.check_breaker(p_policy jsonb, OUT problem text, OUT hint text)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_setting text;
  v_good boolean;
BEGIN
  IF p_policy IS NULL THEN
    RETURN;
  END IF;
  IF jsonb_typeof(p_policy) <> 'object' THEN
    problem := format('%s is not an object', p_policy);
    hint := 'use {"failure_rate": 0.5, "min_attempts": 20, "window": "1m", "pause": "30s", "probes": 1}';
    RETURN;
  END IF;
  FOR v_setting IN SELECT jsonb_object_keys(p_policy) LOOP
    hint := CASE v_setting
      WHEN 'failure_rate' THEN 'use a number above 0, up to 1'
      WHEN 'min_attempts' THEN 'use a whole number from 1 to 1000000'
      WHEN 'probes'       THEN 'use a whole number from 1 to 1000'
      WHEN 'window'       THEN 'use a time from 1 s to 1 day, such as "1m"'
      WHEN 'pause'        THEN 'use a time from 1 s to 1 day, such as "30s"'
      ELSE 'use failure_rate, min_attempts, window, pause, probes'
    END;
    BEGIN
      v_good := CASE v_setting
        WHEN 'failure_rate'
          THEN (p_policy ->> v_setting)::double precision > 0 AND (p_policy ->> v_setting)::double precision <= 1
        WHEN 'min_attempts' THEN (p_policy ->> v_setting)::integer BETWEEN 1 AND 1000000
        WHEN 'probes'       THEN (p_policy ->> v_setting)::integer BETWEEN 1 AND 1000
        WHEN 'window'       THEN (p_policy ->> v_setting)::interval BETWEEN '1 s' AND '1 day'
        WHEN 'pause'        THEN (p_policy ->> v_setting)::interval BETWEEN '1 s' AND '1 day'
        ELSE false
      END;
    EXCEPTION WHEN data_exception THEN
      v_good := false;
    END;
    IF v_good IS NOT TRUE THEN
      problem := format('%s is %s', v_setting, p_policy -> v_setting);
      RETURN;
    END IF;
  END LOOP;
  hint := NULL;
END
$$;
