-- Returns JSON as text; if that text is larger than 32 MiB, it returns a JSON string that says so instead. Use it to
-- view messages that were published before a publish refused such values.
--
-- Errors: none.
-- Locks: none.
-- Called by: operators, who look at messages.
CREATE OR REPLACE FUNCTION messages.display_json(p_json jsonb)
RETURNS text
LANGUAGE plpgsql
IMMUTABLE STRICT PARALLEL SAFE
SECURITY DEFINER
AS $$
BEGIN
  RETURN CASE WHEN messages.jsonb_text_bytes(p_json) <= 33554432 THEN p_json::text
    ELSE '"JSON that is too large as text to be shown"' END;
END
$$;
