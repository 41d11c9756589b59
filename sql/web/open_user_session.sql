-- Keeps a browser logged in with a cookie, whose SHA-256 is `p_digest`, for a user whom a provider of OpenID Connect
-- has identified, and records the login in the audit log. The session has the rights given here until it ends after
-- `p_for`, or by `messages.close_session`. A user has at most 1000 sessions: a further one ends the oldest.
--
-- Arguments: `p_user`: the name for the audit, at most 200 characters. `p_roles`, `p_topics`: as for
-- `messages.add_token`.
-- Errors: 22023 for invalid arguments.
-- Locks: the new row; and the sessions that it ends, skipping those that others hold.
-- Called by: web servers, with the SHA-256 of a new cookie.
CREATE OR REPLACE FUNCTION messages.open_user_session(
  p_user   text,
  p_digest bytea,
  p_roles  text[],
  p_topics text[],
  p_for    interval
)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_problem text := CASE
    WHEN (length(p_user) BETWEEN 1 AND 200 AND messages.is_printable(p_user)) IS NOT TRUE
      THEN 'the name of a user has 1 to 200 printable characters'
    WHEN p_for IS NULL THEN 'a session ends after some time'
    ELSE messages.access_problem(p_roles, p_topics)
  END;
BEGIN
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION '%', v_problem USING ERRCODE = '22023';
  END IF;
  INSERT INTO messages.web_session AS s (digest, user_name, roles, topics, expires_at)
  VALUES (p_digest, p_user, p_roles, p_topics, clock_timestamp() + p_for);
  DELETE FROM messages.web_session AS s
  WHERE s.digest = ANY (ARRAY(
    SELECT o.digest FROM messages.web_session AS o
    WHERE o.user_name = p_user
    ORDER BY o.opened_at DESC, o.digest
    OFFSET 1000
    LIMIT 100
    FOR UPDATE SKIP LOCKED));
  PERFORM messages.audit_action(
    'log_in', NULL, p_user, jsonb_build_object('roles', p_roles, 'topics', p_topics, 'expires_in', p_for));
END
$$;
