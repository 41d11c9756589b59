-- Pack a histogram into one number, as messages.measure keeps it, from its counts by bucket: {"7": 12, "8": 3}.
-- Called by: record_measures. Locks: nothing. Result: 0 for NULL and for no counts.
-- Errors: 22023 for an unknown bucket, or a count that is too large for one.
CREATE OR REPLACE FUNCTION messages.pack_histogram(p_counts jsonb)
RETURNS numeric
LANGUAGE plpgsql
IMMUTABLE
AS $$
DECLARE
  v_packed numeric := 0;
  v_each   record;
BEGIN
  FOR v_each IN SELECT e.key::integer AS bucket, e.value::bigint AS count FROM jsonb_each_text(p_counts) AS e LOOP
    IF v_each.bucket NOT BETWEEN 1 AND 48 OR v_each.count NOT BETWEEN 0 AND 1000000000 THEN
      RAISE EXCEPTION 'bucket % of a histogram counts %', v_each.bucket, v_each.count
        USING ERRCODE = '22023', HINT = 'use buckets 1 to 48 and counts from 0 to 1000000000';
    END IF;
    v_packed := v_packed + (v_each.count::text || repeat('0', 12 * (48 - v_each.bucket)))::numeric;
  END LOOP;
  RETURN v_packed;
END
$$;
