-- Ask a worker to drain: to claim nothing more, finish what runs, and stop, as on SIGTERM.
-- Called by: operators. The daemon reads it with its next update of the registry, within seconds. Its supervisor may start it again.
-- Locks: the worker's row: until the transaction ends the worker does not see the request, and its registry row is not updated. Result:
-- whether the registry knows the worker.
-- Errors: 22023 for a job on Spark, which reads no requests.
CREATE OR REPLACE FUNCTION messages.drain_worker(p_name text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_worker messages.worker;
BEGIN
  UPDATE messages.worker AS w
  SET drain_asked_at = coalesce(w.drain_asked_at, clock_timestamp()), drain_asked_by = messages.actor()
  WHERE w.name = p_name
  RETURNING w.* INTO v_worker;
  IF NOT FOUND THEN
    RETURN false;
  ELSIF v_worker.status ->> 'engine' = 'spark' THEN
    RAISE EXCEPTION 'worker % is a job on Spark', p_name
      USING ERRCODE = '22023', HINT = 'it reads no requests: stop it where it runs; `pgrouse pipeline consume` ends after its batch on SIGTERM';
  END IF;
  PERFORM messages.audit_action('drain_worker', NULL, p_name);
  RETURN true;
END
$$;
