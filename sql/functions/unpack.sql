-- A histogram of messages.measure, or a sum of such, as its 48 counts: element i is what fell into bucket i.
-- Called by: latency, throughput, operators and analysts. Locks: nothing. Result: NULL for NULL.
CREATE OR REPLACE FUNCTION messages.unpack(p_packed numeric)
RETURNS bigint[]
LANGUAGE sql
IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT string_to_array(to_char(p_packed, 'FM' || repeat('000000000000,', 47) || '000000000000'), ',')::bigint[]
$$;
