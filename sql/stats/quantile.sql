-- A quantile of a histogram, in seconds: 0.95 is the time that 95 of 100 did not exceed.
-- Called by: operators, analysts. Locks: nothing.
-- p_counts: element i counts what took longer than bound i - 1 and not longer than bound i, where bound i is 0.0001 s times 2 to the power of
-- i / 2, for i from 1 to 48, and the last bucket has no end. messages.unpack_histogram makes it of what messages.measure keeps.
-- Result: as if the entries of a bucket were spread evenly, which is off by two fifths at most, a bucket's width; 1186 s for what lies in the last bucket; NULL for an
-- empty histogram. Errors: 22023 for a quantile that is not between 0 and 1.
CREATE OR REPLACE FUNCTION messages.quantile(p_counts bigint[], p_q double precision)
RETURNS double precision
LANGUAGE plpgsql
IMMUTABLE STRICT
SECURITY DEFINER
AS $$
BEGIN
  IF p_q NOT BETWEEN 0 AND 1 THEN
    RAISE EXCEPTION 'quantile is %', p_q USING ERRCODE = '22023', HINT = 'use a number from 0 to 1: 0.95 is the 95th percentile';
  END IF;
  RETURN (messages.quantiles(ARRAY(SELECT coalesce(c.count, 0) FROM unnest(p_counts) WITH ORDINALITY AS c (count, nth) ORDER BY c.nth), ARRAY[p_q]))[1];
END
$$;
