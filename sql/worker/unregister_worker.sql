-- Removes a worker from the registry, and its flag.
--
-- Errors: none.
-- Locks: the worker's own rows.
-- Repeat: safe.
-- Called by: daemons that stop in order; prune deletes those that died.
CREATE OR REPLACE FUNCTION messages.unregister_worker(p_name text)
RETURNS void
LANGUAGE sql
SECURITY DEFINER
AS $$
  DELETE FROM messages.sleeper AS s WHERE s.worker = p_name;
  DELETE FROM messages.worker AS w WHERE w.name = p_name
$$;
