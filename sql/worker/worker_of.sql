-- Returns the name of the worker that has locked a message: claim loops of daemons lock as `name/number`, and a name of
-- a worker over HTTP may itself end so.
--
-- Arguments: `p_locked_by`: `locked_by` of the message.
-- Errors: none.
-- Locks: none.
-- Called by: topic_slots, explain_limit, explain_running, is_handled; lists of what workers run.
CREATE OR REPLACE FUNCTION messages.worker_of(p_locked_by text)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE
    WHEN pg_catalog.starts_with(p_locked_by, 'http:') THEN p_locked_by
    ELSE pg_catalog.regexp_replace(p_locked_by, '/[0-9]+$', '')
  END
$$;
