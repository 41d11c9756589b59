-- Announces that a worker is awake: publishes need not notify it. Optional; a flag that stays set costs unnecessary
-- notifications.
--
-- Errors: none.
-- Locks: the worker's own row.
-- Repeat: safe.
-- Called by: workers that have been busy for a while.
CREATE OR REPLACE FUNCTION messages.disarm(p_worker text)
RETURNS void
LANGUAGE sql
SECURITY DEFINER
AS $$
  UPDATE messages.sleeper AS s SET armed_until = 'epoch' WHERE s.worker = p_worker AND s.armed_until > 'epoch'
$$;
