-- Returns the token or the user that is logged in with a cookie.
--
-- Result: one row, as for `messages.check_token`; no row if the session has ended or its token is no longer valid.
-- Errors: none.
-- Locks: none.
-- Called by: web servers, which cache the answer for two seconds.
CREATE OR REPLACE FUNCTION messages.check_session(p_digest bytea)
RETURNS TABLE (name text, roles text[], topics text[])
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT coalesce(s.user_name, t.name), coalesce(s.roles, t.roles), coalesce(s.topics, t.topics)
  FROM messages.web_session AS s
  LEFT JOIN messages.token AS t ON t.name = s.token
  WHERE s.digest = p_digest AND s.expires_at > clock_timestamp() AND (
    s.user_name IS NOT NULL
    OR t.revoked_at IS NULL AND (t.expires_at > clock_timestamp()) IS NOT FALSE)
$$;
