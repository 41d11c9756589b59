-- Returns the token that belongs to a digest. `last_used_at` is written at most every five minutes.
--
-- Result: one row; no row for a token that is unknown, expired or revoked.
-- Errors: none.
-- Locks: the token's row when the last use is written, without waiting.
-- Called by: web servers, which cache the answer for two seconds.
CREATE OR REPLACE FUNCTION messages.check_token(p_digest bytea)
RETURNS TABLE (name text, roles text[], topics text[])
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT t.name, t.roles, t.topics
  FROM messages.token AS t
  WHERE t.digest = p_digest AND t.revoked_at IS NULL AND (t.expires_at > clock_timestamp()) IS NOT FALSE;
  IF FOUND THEN
    UPDATE messages.token AS t
    SET last_used_at = clock_timestamp()
    WHERE t.name = (
      SELECT u.name FROM messages.token AS u
      WHERE u.digest = p_digest AND (u.last_used_at < clock_timestamp() - interval '5 minutes') IS NOT FALSE
      FOR UPDATE SKIP LOCKED);
  END IF;
END
$$;
