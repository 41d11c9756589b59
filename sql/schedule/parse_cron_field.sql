-- Parse one field of a cron expression into bits: bit n is set if the field matches n. The last day of a month is bit 0
-- of its days.
-- Called by: parse_cron. Locks: nothing. Result: problem NULL = bits can be used.
CREATE OR REPLACE FUNCTION messages.parse_cron_field(
  p_field text, p_text text, OUT bits bigint, OUT problem text, OUT hint text
)
LANGUAGE plpgsql
IMMUTABLE
AS $$
DECLARE
  v_low   integer := CASE WHEN p_field IN ('day of month', 'month') THEN 1 ELSE 0 END;
  v_high  integer := CASE p_field WHEN 'second' THEN 59 WHEN 'minute' THEN 59
    WHEN 'hour' THEN 23 WHEN 'day of month' THEN 31
    WHEN 'month' THEN 12 ELSE 7 END;
  v_names text[] := CASE p_field
    WHEN 'month' THEN '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}'
    WHEN 'day of week' THEN '{sun,mon,tue,wed,thu,fri,sat}'
    ELSE '{}' END::text[];
  v_item  text;
  v_parts text[];
  v_from  integer;
  v_to    integer;
  v_step  integer;
BEGIN
  bits := 0;
  FOREACH v_item IN ARRAY regexp_split_to_array(lower(p_text COLLATE "C"), ',') LOOP
    IF p_field = 'day of month' AND v_item IN ('l', '$') THEN
      bits := bits | 1;
      CONTINUE;
    END IF;
    v_parts := regexp_match(v_item, E'^(?:\\*|(\\d{1,2}|[a-z]{3})(?:-(\\d{1,2}|[a-z]{3}))?)(?:/(\\d{1,3}))?$');
    v_from := CASE
      WHEN v_item LIKE '*%' THEN v_low
      WHEN v_parts[1] ~ E'^\\d' THEN v_parts[1]::integer
      ELSE array_position(v_names, v_parts[1]) - 1 + v_low END;
    v_step := coalesce(v_parts[3]::integer, 1);
    v_to := CASE
      WHEN v_item LIKE '*%' OR (v_parts[2] IS NULL AND v_parts[3] IS NOT NULL) THEN v_high
      WHEN v_parts[2] IS NULL THEN v_from
      WHEN v_parts[2] ~ E'^\\d' THEN v_parts[2]::integer
      ELSE array_position(v_names, v_parts[2]) - 1 + v_low END;

    hint := CASE
      WHEN v_parts IS NULL OR v_from IS NULL OR v_to IS NULL OR v_from NOT BETWEEN v_low AND v_high
        OR v_to NOT BETWEEN v_low AND v_high THEN
        format('use * or %s to %s%s, lists like 1,3, ranges like 1-5 and steps like */2', v_low, v_high,
               CASE p_field WHEN 'day of week' THEN ' (0 and 7 are Sunday) or sun to sat'
                           WHEN 'month' THEN ' or jan to dec'
                           WHEN 'day of month' THEN ' or L for the last day' ELSE '' END)
      WHEN v_to < v_from THEN format('a range goes up: use %s-%s,%s-%s', v_from, v_high, v_low, v_to)
      WHEN v_step NOT BETWEEN 1 AND v_high THEN format('use a step from 1 to %s', v_high)
    END;
    IF hint IS NOT NULL THEN
      problem := format('%s is "%s"', p_field, p_text);
      RETURN;
    END IF;
    SELECT bits | bit_or(1::bigint << n) INTO bits FROM generate_series(v_from, v_to, v_step) AS n;
  END LOOP;
  -- Sunday has two numbers.
  IF p_field = 'day of week' THEN
    bits := (bits | (bits >> 7)) & 127;
  END IF;
END
$$;
