-- Returns a histogram of `messages.measure`, or a sum of several, as its 48 counts; NULL for NULL.
--
-- Errors: none.
-- Locks: none.
-- Called by: latency, throughput, operators and analysts.
CREATE OR REPLACE FUNCTION messages.unpack_histogram(p_packed numeric)
RETURNS bigint[]
LANGUAGE sql
IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT pg_catalog.string_to_array(
    pg_catalog.to_char(
      p_packed,
      'FM' OPERATOR(pg_catalog.||) pg_catalog.repeat('000000000000,', 47) OPERATOR(pg_catalog.||) '000000000000'),
    ',')::bigint[]
$$;
