-- Who acts: the name that the caller gives itself by the setting messages.actor (the web side: of its token), else the session's user.
-- Called by: note_action, and whatever keeps a name. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.actor()
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(nullif(left(current_setting('messages.actor', true), 200), ''), session_user::text)
$$;
