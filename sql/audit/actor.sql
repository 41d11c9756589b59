-- The name for the audit: the setting messages.actor if the caller sets it (the web server sets the name of the token),
-- else the session's user.
-- Called by: audit_action, and functions that record a name. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.actor()
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(nullif(left(current_setting('messages.actor', true), 200), ''), session_user::text)
$$;
