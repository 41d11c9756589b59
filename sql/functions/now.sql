-- The time by which the queue lives: the server's clock, or messages.fake_now in a session of the schema's owner (tests).
-- Called by: every function here that needs a time. Locks: nothing.
-- Without the privilege the setting is ignored: a worker must not be able to expire the locks of others.
CREATE OR REPLACE FUNCTION messages.now()
RETURNS timestamptz
LANGUAGE sql
VOLATILE PARALLEL SAFE
AS $$
  SELECT CASE
    WHEN coalesce(current_setting('messages.fake_now', true), '') = '' THEN clock_timestamp()
    WHEN has_schema_privilege(session_user, 'messages', 'CREATE') THEN current_setting('messages.fake_now')::timestamptz
    ELSE clock_timestamp()
  END
$$;
