-- Asks a worker to drain: it claims nothing more, lets running messages finish, and stops, as on SIGTERM. It reads this
-- request with its next sign of life, within about five seconds. If one `pgrouse run` has several processes, all of
-- them drain. The program that started it, for example a service manager, may start it again.
--
-- Result: whether the registry knows the worker.
-- Errors: 22023 for a job on Spark, which reads no requests: its status has `"engine": "spark"`.
-- Locks: the worker's row: until the transaction ends, the worker does not see the request, and its signs of life are
-- not written.
-- Repeat: safe.
-- Called by: operators.
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
      USING ERRCODE = '22023',
        HINT = 'it reads no requests: stop it where it runs; `pgrouse pipeline consume` ends after its batch on '
          'SIGTERM';
  END IF;
  PERFORM messages.audit_action('drain_worker', NULL, p_name);
  RETURN true;
END
$$;
