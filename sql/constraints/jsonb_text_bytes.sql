-- Returns the number of bytes that JSON has as text, without writing out more than about 200 MB.
-- Called by: functions that take JSON other than a message's payload or headers, or show JSON that may be older than
-- these bounds.
-- Locks: nothing. Result: 1073741823 for what is too large to be written out.
CREATE OR REPLACE FUNCTION messages.jsonb_text_bytes(p_json jsonb)
RETURNS integer
LANGUAGE plpgsql
IMMUTABLE STRICT PARALLEL SAFE
AS $$
BEGIN
  -- No more than 179 MB, if it is made of nothing but the longest numbers. What is compressed says nothing of how large
  -- it is.
  IF (pg_column_compression(p_json) IS NULL AND pg_column_size(p_json) <= 16384)
    OR messages.long_number_bytes(p_json) <= 16777216 THEN
    RETURN octet_length(p_json::text);
  END IF;
  RETURN 1073741823;
END
$$;
