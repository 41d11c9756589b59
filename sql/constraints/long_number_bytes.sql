-- Returns how many bytes the long numbers of a value have as text. `1e131071` is stored in 8 bytes, and has 131,072
-- bytes as text. More than 16 MiB is returned as 1073741823.
--
-- Errors: none.
-- Locks: none.
-- Called by: the domains of the table, for values that are not small; jsonb_text_bytes.
-- Inside: Without its long numbers, the text of a value is never much longer than its stored form. Beyond 16 MiB it
-- stops, so that neither memory nor time depends on the numbers.
CREATE OR REPLACE FUNCTION messages.long_number_bytes(p_json jsonb)
RETURNS integer
LANGUAGE plpgsql
IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
  -- A value from another table may be compressed: its size says nothing.
  v_json  jsonb   := p_json #> '{}'::text[];
  v_bytes integer := 0;
  v_next  integer;
BEGIN
  IF pg_column_size(v_json) > 16777216 THEN
    RETURN 1073741823;
  END IF;
  FOR v_next IN
    SELECT length(n.number::text)
    FROM jsonb_path_query(v_json, 'strict $.** ? (@.type() == "number")') AS n (number)
    WHERE scale(n.number::numeric) > 100 OR abs(n.number::numeric) > 1e100
  LOOP
    v_bytes := v_bytes + v_next;
    IF v_bytes > 16777216 THEN
      RETURN 1073741823;
    END IF;
  END LOOP;
  RETURN v_bytes;
END
$$;
