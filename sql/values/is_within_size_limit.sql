-- Returns whether a message with these contents may be published: its text is not too large.
-- Called by: dead_message, preview_redrive, of what came before the domains refused it. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.is_within_size_limit(p_payload jsonb, p_headers jsonb)
RETURNS boolean
LANGUAGE plpgsql
IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  v_headers integer := coalesce(messages.jsonb_text_bytes(p_headers), 0);
BEGIN
  RETURN v_headers <= 65536 AND coalesce(messages.jsonb_text_bytes(p_payload), 0) + v_headers <= 16842752;
END
$$;
