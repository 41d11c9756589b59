-- Makes a token invalid, and ends the sessions that were opened with it. Web servers cache a token for at most two
-- seconds.
--
-- Result: whether it was valid.
-- Errors: P0002 for a token that does not exist.
-- Locks: the rows it changes.
-- Repeat: safe.
-- Called by: operators (`pgrouse token revoke`).
CREATE OR REPLACE FUNCTION messages.revoke_token(p_name text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_was_good boolean;
BEGIN
  SELECT t.revoked_at IS NULL AND (t.expires_at > clock_timestamp()) IS NOT FALSE INTO v_was_good
  FROM messages.token AS t WHERE t.name = p_name FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no token %', coalesce('"' || p_name || '"', 'NULL')
      USING ERRCODE = 'P0002', HINT = 'see `pgrouse token list` for those there are';
  END IF;
  UPDATE messages.token AS t SET revoked_at = coalesce(t.revoked_at, clock_timestamp()) WHERE t.name = p_name;
  DELETE FROM messages.web_session AS s WHERE s.token = p_name;
  IF v_was_good THEN
    PERFORM messages.audit_action('revoke_token', NULL, p_name);
  END IF;
  RETURN v_was_good;
END
$$;
