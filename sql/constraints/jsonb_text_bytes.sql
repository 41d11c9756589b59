-- How many bytes JSON has as text, which is how it is handed out, without writing out more than some 200 MB.
-- Called by: whoever takes JSON that is not a message's payload or headers, or shows what may be there from before these had a bound.
-- Locks: nothing. Result: 1073741823 for what is too large to be written out.
CREATE OR REPLACE FUNCTION messages.text_bytes(p_json jsonb)
RETURNS integer
LANGUAGE plpgsql
IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  -- No more than 179 MB, if it is made of nothing but the longest numbers. What is compressed says nothing of how large it is.
  IF (pg_column_compression(p_json) IS NULL AND pg_column_size(p_json) <= 16384)
    OR messages.long_numbers(p_json) <= 16777216 THEN
    RETURN octet_length(p_json::text);
  END IF;
  RETURN 1073741823;
END
$$;
