-- Changes how many handlers a worker runs at once, until its process ends. NULL: as many as it is configured for. It
-- reads this request with its next sign of life, within about five seconds. Handlers that run are not stopped: with a
-- lower number, the worker claims nothing until fewer run. Each process of a `pgrouse run` is a worker of its own. At
-- most `worker.threads` sync handlers run at once, and batches have slots of their own; neither changes.
--
-- Result: whether the registry knows the worker.
-- Errors: 22023 for a number below 1 or above 10000, for a worker over HTTP, whose claims say how many messages it
-- takes, and for a job on Spark, which reads no requests.
-- Locks: as `messages.drain_worker`.
-- Repeat: safe.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.scale_worker(p_name text, p_concurrency integer DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_worker messages.worker;
BEGIN
  IF p_concurrency NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'a worker cannot run % handlers at once', p_concurrency
      USING ERRCODE = '22023',
        HINT = 'use a number from 1 to 10000, or NULL for the one of its configuration; to stop it, drain it';
  END IF;
  SELECT w.* INTO v_worker FROM messages.worker AS w WHERE w.name = p_name FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  ELSIF v_worker.kind = 'http' THEN
    RAISE EXCEPTION 'worker % claims over HTTP', p_name
      USING ERRCODE = '22023', HINT = 'its claims say how many messages it takes: change that where it runs';
  ELSIF v_worker.status ->> 'engine' = 'spark' THEN
    RAISE EXCEPTION 'worker % is a job on Spark', p_name
      USING ERRCODE = '22023', HINT = 'it reads no requests: restart it with other options';
  END IF;
  UPDATE messages.worker AS w SET requested_concurrency = p_concurrency WHERE w.name = p_name;
  PERFORM messages.audit_action(
    'scale_worker', NULL, p_name, pg_catalog.jsonb_build_object('concurrency', p_concurrency));
  RETURN true;
END
$$;
