-- Record that a worker is awake: publishes need not notify it.
-- Called by: workers that have been busy for a while.
-- Locks: the worker's own row, which only it writes.
CREATE OR REPLACE FUNCTION messages.disarm(p_worker text)
RETURNS void
LANGUAGE sql
SECURITY DEFINER
AS $$
  UPDATE messages.sleeper AS s SET armed_until = 'epoch' WHERE s.worker = p_worker AND s.armed_until > 'epoch'
$$;
