-- JSON as text for display, or a JSON string in its place if it is too large.
-- Called by: operators, who look at messages. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.display_json(p_json jsonb)
RETURNS text
LANGUAGE plpgsql
IMMUTABLE STRICT PARALLEL SAFE
SECURITY DEFINER
AS $$
BEGIN
  RETURN CASE WHEN messages.jsonb_text_bytes(p_json) <= 33554432 THEN p_json::text ELSE '"JSON that is too large as text to be shown"' END;
END
$$;
