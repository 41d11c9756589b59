-- Find the problem of a time zone, and how to fix it. Only names that the server has count: AT TIME ZONE also takes
-- offsets ("+02:00", "UTC+2"), which it counts westwards, as POSIX does, and abbreviations, which have no daylight
-- saving time.
-- Called by: the trigger of messages.schedule, next_ticks. Locks: nothing. Result: problem NULL = it can be used.
CREATE OR REPLACE FUNCTION messages.check_time_zone(p_time_zone text, OUT problem text, OUT hint text)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_offset text[] := regexp_match(p_time_zone, E'^(?:UTC|GMT)?([+-])0?(\\d{1,2})(?::?00)?$', 'i');
BEGIN
  -- These names are abbreviations too, and AT TIME ZONE takes them for those: winter time, all the year.
  IF p_time_zone IN ('CET', 'EET', 'MET', 'WET') THEN
    problem := format('is "%s", which has no daylight saving time in PostgreSQL', p_time_zone);
    hint := 'use the name of a region, like Europe/Berlin';
  ELSIF p_time_zone = 'UTC' OR EXISTS (SELECT FROM pg_timezone_names AS z WHERE z.name = p_time_zone) THEN
    RETURN;
  ELSIF v_offset[2]::integer BETWEEN 1 AND 12 THEN
    problem := format('is "%s", which PostgreSQL counts in the other direction', p_time_zone);
    hint := format('use the name of a region, like Europe/Berlin, or Etc/GMT%s%s',
      CASE v_offset[1] WHEN '+' THEN '-' ELSE '+' END, v_offset[2]::integer);
  ELSE
    problem := format('is "%s"', coalesce(p_time_zone, 'NULL'));
    hint := 'use an IANA name, like ' || coalesce(
      (SELECT z.name FROM pg_timezone_names AS z
       WHERE z.name !~ '^posix'
         AND (
           lower(z.name COLLATE "C") = lower(p_time_zone COLLATE "C")
             OR lower(z.name COLLATE "C") LIKE '%/' || lower(p_time_zone COLLATE "C")
         ) ORDER BY z.name LIMIT 1),
      'UTC or Europe/Berlin');
  END IF;
END
$$;
