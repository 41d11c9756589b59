-- The moment after p_after and up to p_until at which a time zone changes its offset; at most one change lies in that range.
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
