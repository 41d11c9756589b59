-- Returns what is wrong with the backoff of a topic or of a message, and how to fix it.
--
-- Result: `problem` NULL = it is valid.
-- Errors: none.
-- Locks: none.
-- Called by: the trigger of messages.topic, publish, and the domain of a message's own backoff.
-- Inside: Times are bounded, so that no retry can fail because a sum of times cannot be represented.
CREATE OR REPLACE FUNCTION messages.check_backoff(p_policy jsonb, OUT problem text, OUT hint text)
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
  -- Before anything writes it out as text: a publisher may give it. The path makes a copy that is not compressed.
  IF pg_column_size(p_policy #> '{}'::text[]) > 1000 THEN
    problem := 'it is larger than 1000 bytes';
    hint := 'known keys: kind, base, step, factor, cap, jitter, max_total';
    RETURN;
  END IF;
  IF jsonb_typeof(p_policy) <> 'object' THEN
    problem := 'it is of type ' || jsonb_typeof(p_policy);
    hint := 'use an object, like {"kind": "exponential", "base": "1s"}';
    RETURN;
  END IF;
  IF p_policy ->> 'kind' IS NULL THEN
    problem := 'kind is missing';
    hint := 'use none, constant, linear or exponential';
    RETURN;
  END IF;

  FOR v_setting IN SELECT k FROM jsonb_object_keys(p_policy) AS k LOOP
    BEGIN
      CASE
        WHEN v_setting = 'kind' THEN
          hint := 'use none, constant, linear or exponential';
          v_good := p_policy ->> v_setting IN ('none', 'constant', 'linear', 'exponential');
        WHEN v_setting IN ('base', 'step', 'cap', 'max_total') THEN
          hint := 'use an interval from 0 to 3650 days, like "1s" or "10 minutes"';
          v_good := (p_policy ->> v_setting)::interval BETWEEN '0' AND '3650 days';
        WHEN v_setting = 'factor' THEN
          hint := 'use a number from 1 to 1000';
          v_good := (p_policy ->> v_setting)::double precision BETWEEN 1 AND 1000;
        WHEN v_setting = 'jitter' THEN
          hint := 'use "full" or a number from 0 to 1';
          v_good := p_policy ->> v_setting = 'full' OR (p_policy ->> v_setting)::double precision BETWEEN 0 AND 1;
        ELSE
          problem := format('unknown key "%s"', v_setting);
          hint := 'known keys: kind, base, step, factor, cap, jitter, max_total';
          RETURN;
      END CASE;
    EXCEPTION WHEN data_exception THEN
      v_good := false;
    END;
    IF NOT v_good THEN
      problem := format('%s is "%s"', v_setting, left(p_policy ->> v_setting, 250));
      RETURN;
    END IF;
  END LOOP;
  hint := NULL;
END
$$;
