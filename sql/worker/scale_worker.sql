-- Changes how many handlers a worker runs at once, until its process ends. NULL: as many as it is configured for. It
-- reads this request with its next sign of life, within about five seconds. Handlers that run are not stopped: with a
-- lower number, the worker claims nothing until fewer run. Each process of a `pgrouse run` is a worker of its own. At
-- most `worker.threads` sync handlers run at once, and batches have slots of their own; neither changes.
--
-- With a topic, changes how many of its messages the worker runs at once, instead of the topic's `worker_concurrency`.
-- NULL: as many as that. It holds from the next claim on, also for a worker over HTTP or on Spark.
--
-- Arguments: `p_topic`: a topic that the worker handles, and that has `worker_concurrency`; no pattern.
-- Result: whether the registry knows the worker.
-- Errors: 22023 for a number below 1 or above 10000, for another topic, and without a topic for a worker over HTTP,
-- whose claims say how many messages it takes, and for a job on Spark, which reads no requests.
-- Locks: as `messages.drain_worker`.
-- Repeat: safe.
-- Called by: operators.
-- Inside: A topic that no policy limits is claimed without a look at the worker, so a worker can have a limit of its
-- own only where the topic has `worker_concurrency`. The NOTIFY of topic_changed wakes the worker, which claims again.
CREATE OR REPLACE FUNCTION messages.scale_worker(
  p_name text, p_concurrency integer DEFAULT NULL, p_topic text DEFAULT NULL
)
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
  ELSIF p_topic IS NOT NULL THEN
    PERFORM messages.scale_topic(v_worker, p_concurrency, p_topic);
  ELSIF v_worker.kind = 'http' THEN
    RAISE EXCEPTION 'worker % claims over HTTP', p_name
      USING ERRCODE = '22023', HINT = 'its claims say how many messages it takes: change that where it runs';
  ELSIF v_worker.status ->> 'engine' = 'spark' THEN
    RAISE EXCEPTION 'worker % is a job on Spark', p_name
      USING ERRCODE = '22023', HINT = 'it reads no requests: restart it with other options';
  ELSE
    UPDATE messages.worker AS w SET requested_concurrency = p_concurrency WHERE w.name = p_name;
  END IF;
  PERFORM messages.audit_action(
    'scale_worker', p_topic, p_name, pg_catalog.jsonb_build_object('concurrency', p_concurrency));
  RETURN true;
END
$$;

-- Change how many messages of a topic a worker runs at once. Called by: scale_worker, which holds its row.
-- Locks: nothing more. Errors: 22023.
CREATE OR REPLACE FUNCTION messages.scale_topic(p_worker messages.worker, p_concurrency integer, p_topic text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF NOT (p_topic = ANY (p_worker.topics)
    OR p_worker.patterns IS NOT NULL AND messages.patterns_of(p_topic) && p_worker.patterns)
  THEN
    RAISE EXCEPTION 'worker % does not handle topic %', p_worker.name, p_topic
      USING ERRCODE = '22023', HINT = 'use one of its topics, or a topic that one of its patterns matches';
  ELSIF (messages.claim_policy(p_topic, messages.now())).worker_concurrency IS NULL THEN
    RAISE EXCEPTION 'topic % has no worker_concurrency', p_topic
      USING ERRCODE = '22023',
        HINT = format('first limit all workers: `pgrouse topic set %s worker_concurrency=10`', p_topic);
  END IF;
  UPDATE messages.worker AS w
  SET topic_concurrency = (w.topic_concurrency - p_topic)
    || jsonb_strip_nulls(jsonb_build_object(p_topic, p_concurrency))
  WHERE w.name = p_worker.name;
  PERFORM messages.notify('topic_changed', ARRAY['']);
END
$$;
