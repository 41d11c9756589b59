-- Unpack a histogram of messages.measure, or a sum of histograms, into its 48 counts: element i counts bucket i.
-- Called by: latency, throughput, operators and analysts. Locks: nothing. Result: NULL for NULL.
CREATE OR REPLACE FUNCTION messages.unpack_histogram(p_packed numeric)
RETURNS bigint[]
LANGUAGE sql
IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT pg_catalog.string_to_array(
    pg_catalog.to_char(
      p_packed, 'FM' OPERATOR(pg_catalog.||) pg_catalog.repeat('000000000000,', 47) OPERATOR(pg_catalog.||) '000000000000'),
    ',')::bigint[]
$$;
