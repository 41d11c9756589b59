-- Returns the time that the queue uses: the server's clock. In a session of a user with the right to create objects in
-- the schema, the setting `messages.fake_now` replaces it, for tests.
--
-- Errors: none.
-- Locks: none.
-- Called by: every function here that needs a time.
-- Inside: Without the privilege the setting is ignored: a worker must not be able to expire other workers' locks.
-- Qualified throughout and without a search_path of its own: with one it could not be inlined, and every statement
-- would pay for a call.
CREATE OR REPLACE FUNCTION messages.now()
RETURNS timestamptz
LANGUAGE sql
VOLATILE PARALLEL SAFE
AS $$
  SELECT CASE
    WHEN coalesce(pg_catalog.current_setting('messages.fake_now', true), '') OPERATOR(pg_catalog.=) ''
      THEN pg_catalog.clock_timestamp()
    WHEN pg_catalog.has_schema_privilege(session_user, 'messages', 'CREATE')
      THEN pg_catalog.current_setting('messages.fake_now')::pg_catalog.timestamptz
    ELSE pg_catalog.clock_timestamp()
  END
$$;
