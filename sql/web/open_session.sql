-- Keeps a browser logged in with a cookie, whose SHA-256 is `p_digest`, instead of its token, whose SHA-256 is
-- `p_token`. The session ends after `p_for`, with the token, or by `messages.close_session`. A token has at most 1000
-- sessions: a further one ends its oldest.
--
-- Result: whether the token is valid; if not, no session was opened.
-- Errors: none.
-- Locks: the new row, and the token against deletion; and the sessions that it ends, skipping those that others hold.
-- Called by: web servers, with the SHA-256 of the token and of a new cookie.
CREATE OR REPLACE FUNCTION messages.open_session(p_token bytea, p_digest bytea, p_for interval)
RETURNS boolean
LANGUAGE sql
SECURITY DEFINER
AS $$
  WITH opened AS (
    INSERT INTO messages.web_session AS s (digest, token, expires_at)
    SELECT p_digest, t.name, least(t.expires_at, clock_timestamp() + p_for)
    FROM messages.token AS t
    WHERE t.digest = p_token AND t.revoked_at IS NULL AND (t.expires_at > clock_timestamp()) IS NOT FALSE
    RETURNING s.token
  ), ended AS (
    DELETE FROM messages.web_session AS s
    WHERE s.digest = ANY (ARRAY(
      SELECT o.digest FROM messages.web_session AS o
      WHERE o.token = (SELECT n.token FROM opened AS n)
      ORDER BY o.opened_at DESC, o.digest
      OFFSET 999
      LIMIT 100
      FOR UPDATE SKIP LOCKED))
  )
  SELECT EXISTS (SELECT FROM opened)
$$;
