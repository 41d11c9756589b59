-- Ends a session.
--
-- Result: whether there was one.
-- Errors: none.
-- Locks: the row.
-- Repeat: safe.
-- Called by: web servers, when a user logs out.
CREATE OR REPLACE FUNCTION messages.close_session(p_digest bytea)
RETURNS boolean
LANGUAGE sql
SECURITY DEFINER
AS $$
  WITH closed AS (DELETE FROM messages.web_session AS s WHERE s.digest = p_digest RETURNING 1)
  SELECT EXISTS (SELECT FROM closed)
$$;
