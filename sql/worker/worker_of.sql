-- Returns the name of the worker that has locked a message: claim loops of daemons lock as name/number, and a name of a
-- worker over HTTP may itself end so.
-- Called by: topic_slots, explain_limit, explain_running, is_handled. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.worker_of(p_locked_by text)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_locked_by LIKE 'http:%' THEN p_locked_by ELSE regexp_replace(p_locked_by, '/[0-9]+$', '')
  END
$$;
