-- Returns the first local time, at or after a given one, that the fields of a cron expression match. It knows no time
-- zones and no clock changes.
-- Called by: next_tick. Locks: nothing. Result: a whole second; NULL = none within 50 years (29 February on a given
-- weekday can take 40). Steps over months and days that do not match: some hundred steps for 29 February, some thousand
-- for a day that never comes. p_from is a whole second.
CREATE OR REPLACE FUNCTION messages.next_cron_match(p_fields bigint[], p_both boolean, p_from timestamp)
RETURNS timestamp
LANGUAGE plpgsql
IMMUTABLE
AS $$
DECLARE
  v_day    date := p_from::date;
  v_from   time := p_from::time;
  v_end    date := (p_from + interval '50 years')::date;
  v_time   time;
  v_number integer;
  v_dom    boolean;
  v_dow    boolean;
BEGIN
  WHILE v_day <= v_end LOOP
    IF (p_fields[5] >> extract(month FROM v_day)::integer) & 1 = 0 THEN
      v_day := (date_trunc('month', v_day::timestamp) + interval '1 month')::date;
      v_from := '00:00';
      CONTINUE;
    END IF;
    v_number := extract(day FROM v_day);
    v_dom := (p_fields[4] >> v_number) & 1 = 1 OR (p_fields[4] & 1 = 1 AND extract(day FROM v_day + 1) = 1);
    v_dow := (p_fields[6] >> extract(dow FROM v_day)::integer) & 1 = 1;
    IF (v_dom AND v_dow) OR (NOT p_both AND (v_dom OR v_dow)) THEN
      v_time := messages.next_time_match(p_fields, v_from);
      IF v_time IS NOT NULL THEN
        RETURN v_day + v_time;
      END IF;
    END IF;
    v_day := v_day + 1;
    v_from := '00:00';
  END LOOP;
  RETURN NULL;
END
$$;

-- The first time of a day, at or after a given one, that the second, minute and hour of a cron expression match.
-- Called by: next_cron_match. Locks: nothing. Result: NULL = none on this day.
CREATE OR REPLACE FUNCTION messages.next_time_match(p_fields bigint[], p_from time)
RETURNS time
LANGUAGE plpgsql
IMMUTABLE
AS $$
DECLARE
  v_hour   integer := extract(hour FROM p_from);
  v_minute integer := extract(minute FROM p_from);
  v_second integer := extract(second FROM p_from);
BEGIN
  WHILE p_fields[3] >> v_hour <> 0 LOOP
    IF (p_fields[3] >> v_hour) & 1 = 0 OR p_fields[2] >> v_minute = 0 THEN
      v_hour := v_hour + 1;
      v_minute := 0;
      v_second := 0;
    ELSIF (p_fields[2] >> v_minute) & 1 = 0 OR p_fields[1] >> v_second = 0 THEN
      v_minute := v_minute + 1;
      v_second := 0;
    ELSIF (p_fields[1] >> v_second) & 1 = 0 THEN
      v_second := v_second + 1;
    ELSE
      RETURN make_time(v_hour, v_minute, v_second);
    END IF;
  END LOOP;
  RETURN NULL;
END
$$;
