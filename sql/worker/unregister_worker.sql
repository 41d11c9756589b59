-- Take a worker out of the registry, and its flag with it.
-- Called by: daemons that stop in order; those that die are forgotten by prune. Locks: the worker's own rows. The sleeper '*' is nobody's.
CREATE OR REPLACE FUNCTION messages.worker_stopped(p_name text)
RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
  DELETE FROM messages.sleeper AS s WHERE s.worker = p_name AND s.worker <> '*';
  DELETE FROM messages.worker AS w WHERE w.name = p_name
$$;
