-- Returns a quantile of a histogram in seconds; `p_q` 0.95 is the time that 95 of 100 entries did not exceed.
--
-- Arguments: element i of `p_counts` counts the entries that took longer than bound i - 1 and not longer than bound i,
-- which is 0.0001 s * 2^(i/2); the 48th has no upper bound. `messages.unpack_histogram` makes it.
-- Result: as if the entries of a bucket were spread evenly: the error is at most two fifths, the width of a bucket;
-- 1186 for a value in the last bucket; NULL for an empty histogram.
-- Errors: 22023 if `p_q` is not between 0 and 1.
-- Locks: none.
-- Called by: operators, analysts.
CREATE OR REPLACE FUNCTION messages.quantile(p_counts bigint[], p_q double precision)
RETURNS double precision
LANGUAGE plpgsql
IMMUTABLE STRICT
SECURITY DEFINER
AS $$
BEGIN
  IF p_q NOT BETWEEN 0 AND 1 THEN
    RAISE EXCEPTION 'quantile is %', p_q
      USING ERRCODE = '22023', HINT = 'use a number from 0 to 1: 0.95 is the 95th percentile';
  END IF;
  RETURN (
    messages.quantiles(
      ARRAY(SELECT coalesce(c.count, 0) FROM unnest(p_counts) WITH ORDINALITY AS c (count, nth) ORDER BY c.nth),
      ARRAY[p_q])
  )[1];
END
$$;
