-- JSON as text for people and programs that look; a JSON string in its place if it is too large for that.
-- Called by: operators, who look at messages. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.shown(p_json jsonb)
RETURNS text
LANGUAGE plpgsql
IMMUTABLE STRICT PARALLEL SAFE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RETURN CASE WHEN messages.text_bytes(p_json) <= 33554432 THEN p_json::text ELSE '"JSON that is too large as text to be shown"' END;
END
$$;
