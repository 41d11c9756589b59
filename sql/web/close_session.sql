-- End a session: its cookie is no longer valid.
-- Called by: web servers, when a user logs out. Locks: the row. Result: whether there was one.
CREATE OR REPLACE FUNCTION messages.close_session(p_digest bytea)
RETURNS boolean
LANGUAGE sql
SECURITY DEFINER
AS $$
  WITH closed AS (DELETE FROM messages.web_session AS s WHERE s.digest = p_digest RETURNING 1)
  SELECT EXISTS (SELECT FROM closed)
$$;
