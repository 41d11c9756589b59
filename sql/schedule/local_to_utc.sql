-- The first moment, at or after a given one, at which a time zone's clock shows a given local time.
-- Called by: next_tick. Locks: nothing. Result: NULL = the clock never shows it, because it skips that time or showed it before.
-- A time that comes twice has two moments; AT TIME ZONE alone would always give the second one. Assumes that clocks are set no more than
-- once within two days, which holds for all zones since 1970.
CREATE OR REPLACE FUNCTION messages.local_to_utc(p_zone text, p_local timestamp, p_from timestamptz)
RETURNS timestamptz
LANGUAGE sql
STABLE
AS $$
  SELECT min(c.at)
  FROM (VALUES (interval '-1 day'), (interval '1 day')) AS near (shift)
  -- The offset of the zone the day before and the day after.
  CROSS JOIN LATERAL (SELECT (p_local AT TIME ZONE 'UTC') + near.shift AS at) AS u
  CROSS JOIN LATERAL (SELECT (p_local - ((u.at AT TIME ZONE p_zone) - (u.at AT TIME ZONE 'UTC'))) AT TIME ZONE 'UTC' AS at) AS c
  WHERE c.at >= p_from AND c.at AT TIME ZONE p_zone = p_local
$$;
