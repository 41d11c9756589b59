-- The state of each worker of the registry: the one definition of alive, of handles, and of state.
-- Read by: everything that shows or counts workers. Locks: nothing.
-- alive: a daemon reports every few seconds, and was seen within 30 s; a worker over HTTP is seen when it claims, and
-- was within 2 minutes. state: working, draining (asked to), stopping; else silent, a daemon that died, hangs or is
-- disconnected; or gone, a worker over HTTP that has stopped claiming: it need not unregister. handles: it gets
-- messages of its topics. listener: what it last reported about its listener. topic_limits: by topic or pattern of its
-- list, where the policy has one, how many messages it may run at once (worker_concurrency); and by topic, where it was
-- scaled.
CREATE OR REPLACE VIEW messages.worker_state
WITH (security_invoker = true) AS
SELECT
  w.name, w.kind, w.host, w.pid, w.version, w.topics, w.patterns,
  coalesce(w.requested_concurrency, w.concurrency) AS concurrency, w.concurrency AS configured_concurrency,
  w.started_at, w.seen_at, w.drain_asked_at, w.drain_asked_by, w.status,
  a.alive,
  CASE
    WHEN NOT a.alive THEN CASE w.kind WHEN 'http' THEN 'gone' ELSE 'silent' END
    WHEN w.stopping THEN 'stopping'
    WHEN w.drain_asked_at IS NOT NULL THEN 'draining'
    ELSE 'working'
  END AS state,
  a.alive AND NOT w.stopping AS handles,
  w.status ->> 'listener' AS listener,
  clock_timestamp() - w.started_at AS up, clock_timestamp() - w.seen_at AS age,
  coalesce((
    SELECT jsonb_object_agg(
      e.topic,
      coalesce((w.topic_concurrency ->> e.topic)::integer, t.worker_concurrency, d.worker_concurrency))
    FROM (SELECT unnest(w.topics) UNION SELECT jsonb_object_keys(w.topic_concurrency)) AS e (topic)
    JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(e.topic)
    LEFT JOIN messages.topic AS t ON t.topic = e.topic
    WHERE coalesce(t.worker_concurrency, d.worker_concurrency) > 0), '{}') AS topic_limits
FROM messages.worker AS w
CROSS JOIN LATERAL (
  SELECT w.seen_at > clock_timestamp() - CASE w.kind WHEN 'http' THEN interval '2 minutes'
    ELSE interval '30 s' END AS alive) AS a;
