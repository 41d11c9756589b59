-- Several quantiles of one histogram, in seconds: see quantile.
-- Called by: quantile, latency, throughput. Locks: nothing. p_counts: none is NULL. p_qs: in ascending order.
-- Result: one for each of p_qs; NULL for an empty histogram.
CREATE OR REPLACE FUNCTION messages.quantiles(p_counts bigint[], p_qs double precision[])
RETURNS double precision[]
LANGUAGE plpgsql
IMMUTABLE STRICT
AS $$
DECLARE
  v_all   bigint := 0;
  v_found double precision[];
  v_up_to bigint := 0;
  v_count bigint;
  v_rank  double precision;
  v_low   double precision;
BEGIN
  FOREACH v_count IN ARRAY p_counts LOOP
    v_all := v_all + v_count;
  END LOOP;
  IF v_all = 0 THEN
    RETURN NULL;
  END IF;
  v_rank := p_qs[1] * v_all;
  FOR v_bucket IN 1 .. cardinality(p_counts) LOOP
    v_up_to := v_up_to + p_counts[v_bucket];
    WHILE v_up_to >= v_rank AND v_up_to > 0 LOOP
      v_count := p_counts[v_bucket];
      v_low := CASE WHEN v_bucket > 1 THEN 0.0001 * power(2.0::double precision, (v_bucket - 1) / 2.0) ELSE 0 END;
      v_found := v_found || CASE
        WHEN v_bucket >= 48 THEN v_low
        ELSE v_low + (
          0.0001 * power(2.0::double precision, v_bucket / 2.0) - v_low
        ) * (v_rank - v_up_to + v_count) / v_count END;
      v_rank := p_qs[1 + cardinality(v_found)] * v_all;
    END LOOP;
    EXIT WHEN v_rank IS NULL;
  END LOOP;
  RETURN v_found;
END
$$;
