-- Say that a worker is awake: publishes need not ring for it any more.
-- Called by: workers that have had work for a while. The sleeper '*' is nobody's.
-- Locks: the worker's own row, which nobody else writes.
CREATE OR REPLACE FUNCTION messages.disarm(p_worker text)
RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
  UPDATE messages.sleeper AS s SET armed_until = 'epoch' WHERE s.worker = p_worker AND s.armed_until > 'epoch' AND s.worker <> '*'
$$;
