-- The queue's clock: the server's clock, or messages.fake_now in a session of the schema's owner (tests).
-- Called by: every function here that needs a time. Locks: nothing.
-- Without the privilege the setting is ignored: a worker must not be able to expire other workers' locks.
-- Qualified throughout and without a search_path of its own: with one it could not be inlined, and every statement would pay for a call.
CREATE OR REPLACE FUNCTION messages.now()
RETURNS timestamptz
LANGUAGE sql
VOLATILE PARALLEL SAFE
AS $$
  SELECT CASE
    WHEN coalesce(pg_catalog.current_setting('messages.fake_now', true), '') OPERATOR(pg_catalog.=) '' THEN pg_catalog.clock_timestamp()
    WHEN pg_catalog.has_schema_privilege(session_user, 'messages', 'CREATE') THEN pg_catalog.current_setting('messages.fake_now')::pg_catalog.timestamptz
    ELSE pg_catalog.clock_timestamp()
  END
$$;
