-- Returns the time at which a schedule is due next: the first tick of a cron expression in a time zone after a moment.
-- Called by: the trigger of messages.schedule, fire_schedule, latest_ticks, next_ticks. Locks: nothing.
-- Result: NULL = no tick within 50 years. Errors: 22023 for an expression or a time zone that cannot be used.
-- At changes of the offset it does what Vixie cron does: a fixed time that is skipped ticks at the first moment after
-- the gap, one that occurs twice ticks the first time only; expressions with a second, minute or hour that begins with
-- a star tick whenever the clock shows it, so that "every hour" is every hour. Intervals tick at whole multiples since
-- 1970 UTC, so that all daemons agree.
CREATE OR REPLACE FUNCTION messages.next_tick(p_cron text, p_time_zone text, p_after timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_cron   record := messages.parse_cron(p_cron);
  v_local  timestamp;
  v_tick   timestamptz;
  v_change timestamptz;
BEGIN
  IF v_cron.problem IS NOT NULL THEN
    RAISE EXCEPTION 'cron: %', v_cron.problem USING ERRCODE = '22023', HINT = v_cron.hint;
  END IF;
  IF v_cron.seconds IS NOT NULL THEN
    RETURN to_timestamp((floor(extract(epoch FROM p_after) / v_cron.seconds) + 1) * v_cron.seconds);
  END IF;

  v_local := date_trunc('second', p_after AT TIME ZONE p_time_zone);
  LOOP
    v_local := messages.next_cron_match(v_cron.fields, v_cron.both_days, v_local + interval '1 second');
    IF v_local IS NULL THEN
      RETURN NULL;
    ELSIF p_time_zone = 'UTC' THEN
      v_tick := v_local AT TIME ZONE 'UTC';
    ELSIF v_cron.wild THEN
      v_tick := messages.local_to_utc(p_time_zone, v_local, p_after + interval '1 microsecond');
    ELSE
      v_tick := coalesce(
        messages.local_to_utc(p_time_zone, v_local, '-infinity'),
        messages.dst_change(
          p_time_zone, (v_local AT TIME ZONE 'UTC') - interval '1 day', (v_local AT TIME ZONE 'UTC') + interval '1 day'
        ));
    END IF;
    EXIT WHEN v_tick > p_after;
    -- The clocks skip this time, or have shown it before: go on with what they show after that.
    v_change := messages.dst_change(
      p_time_zone, (v_local AT TIME ZONE 'UTC') - interval '1 day', (v_local AT TIME ZONE 'UTC') + interval '1 day');
    v_local := greatest(
      v_local, (v_change AT TIME ZONE p_time_zone) - interval '1 second',
      (v_change - interval '1 second') AT TIME ZONE p_time_zone);
  END LOOP;
  IF p_time_zone = 'UTC' OR NOT v_cron.wild THEN
    RETURN v_tick;
  END IF;

  -- Clocks that are set back soon show times again that are already over.
  v_change := messages.dst_change(p_time_zone, p_after, p_after + interval '1 day');
  IF v_change < v_tick
    AND v_change AT TIME ZONE p_time_zone < p_after AT TIME ZONE p_time_zone + (v_change - p_after) THEN
    v_local := messages.next_cron_match(v_cron.fields, v_cron.both_days, v_change AT TIME ZONE p_time_zone);
    v_tick := least(v_tick, messages.local_to_utc(p_time_zone, v_local, v_change));
  END IF;
  RETURN v_tick;
END
$$;

-- The first moment, at or after a given one, at which a time zone's clock shows a given local time.
-- Called by: next_tick. Locks: nothing. Result: NULL = the clock never shows it, because it skips that time or showed
-- it before. A time that comes twice has two moments; AT TIME ZONE alone would always give the second one. Assumes that
-- clocks are set no more than once within two days, which holds for all zones since 1970.
CREATE OR REPLACE FUNCTION messages.local_to_utc(p_zone text, p_local timestamp, p_from timestamptz)
RETURNS timestamptz
LANGUAGE sql
STABLE
AS $$
  SELECT min(c.at)
  FROM (VALUES (interval '-1 day'), (interval '1 day')) AS near (shift)
  -- The offset of the zone the day before and the day after.
  CROSS JOIN LATERAL (SELECT (p_local AT TIME ZONE 'UTC') + near.shift AS at) AS u
  CROSS JOIN LATERAL (
    SELECT (p_local - ((u.at AT TIME ZONE p_zone) - (u.at AT TIME ZONE 'UTC'))) AT TIME ZONE 'UTC' AS at
  ) AS c
  WHERE c.at >= p_from AND c.at AT TIME ZONE p_zone = p_local
$$;

-- The moment after p_after and up to p_until at which a time zone changes its offset; at most one change lies in that
-- range.
-- Called by: next_tick. Locks: nothing. Result: to the second; NULL = there is no change.
CREATE OR REPLACE FUNCTION messages.dst_change(p_zone text, p_after timestamptz, p_until timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_offset interval := (p_after AT TIME ZONE p_zone) - (p_after AT TIME ZONE 'UTC');
  v_low    bigint := floor(extract(epoch FROM p_after));
  v_high   bigint := ceil(extract(epoch FROM p_until));
  v_middle bigint;
BEGIN
  IF (p_until AT TIME ZONE p_zone) - (p_until AT TIME ZONE 'UTC') = v_offset THEN
    RETURN NULL;
  END IF;
  WHILE v_high - v_low > 1 LOOP
    v_middle := (v_low + v_high) / 2;
    IF (to_timestamp(v_middle) AT TIME ZONE p_zone) - (to_timestamp(v_middle) AT TIME ZONE 'UTC') = v_offset THEN
      v_low := v_middle;
    ELSE
      v_high := v_middle;
    END IF;
  END LOOP;
  RETURN to_timestamp(v_high);
END
$$;
