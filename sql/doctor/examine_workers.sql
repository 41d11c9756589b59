-- Checks that every topic that needs a worker has one, that workers listen, and that they have one version.
--
-- Result: for each code what is wrong with it, by object, or one row with level `ok`. The codes are `workers`,
-- `workers_gone`, `worker_versions`, `listeners`, `unhandled_topics`, `idle_topics`. One cause is one finding: what
-- `workers` explains has the level `ok`.
-- Errors: none.
-- Locks: none.
-- Cost: the registry, one entry of the index for each topic that waits.
-- Called by: doctor, `pgrouse doctor`.
CREATE OR REPLACE FUNCTION messages.examine_workers()
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  WITH worker AS MATERIALIZED (
    SELECT w.* FROM messages.worker_state AS w
  ), down AS MATERIALIZED (
    SELECT d.* FROM messages.workers_down() AS d
  ), no_worker AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM down) AND NOT EXISTS (SELECT FROM worker AS w WHERE w.alive) AS explains
  ), unhandled AS MATERIALIZED (
    -- For a moment it is a warning. Once it lasts it is what conditions, the alerts and the dashboard call a failure.
    SELECT s.topic, CASE WHEN c.topic IS NULL THEN 'warn' ELSE messages.condition_level('no_worker') END AS level
    FROM messages.topic_state(ARRAY(SELECT messages.unhandled_topics())) AS s
    LEFT JOIN messages.conditions() AS c ON c.kind = 'no_worker' AND c.topic = s.topic
    -- Dead letters wait for an operator; what is paused is so on purpose, and of an open breaker there is a finding of
    -- its own.
    WHERE right(s.topic, 4) <> '.dlq' AND NOT s.stopped AND NOT (SELECT n.explains FROM no_worker AS n)
    LIMIT 100
  ), found (code, level, what, fix) AS (
    SELECT 'workers', messages.condition_level('workers_down'), d.what, d.fix FROM down AS d
    UNION ALL
    -- As long as none has died, and nothing waits, none may be wanted.
    SELECT 'workers', 'warn', 'no worker is alive', 'start one with `pgrouse run`'
    WHERE NOT EXISTS (SELECT FROM worker AS w WHERE w.alive) AND NOT EXISTS (SELECT FROM down)
    UNION ALL
    SELECT 'workers_gone', 'warn',
           format('%s (process %s on %s) was last seen %s s ago, and did not unregister', w.name, w.pid, w.host,
             round(extract(epoch FROM messages.now() - w.seen_at))),
           format('see its log; if it will not come back: SELECT messages.unregister_worker(%L);', w.name)
    FROM worker AS w
    WHERE w.state = 'silent' AND NOT EXISTS (SELECT FROM down)
    UNION ALL
    SELECT 'worker_versions', 'warn',
           format(
             'workers of several versions are alive: %s',
             string_agg(v.version || ' (' || v.count || ')', ', ' ORDER BY v.version)),
           'bring the others up to date'
    FROM (SELECT w.version, count(*) FROM worker AS w WHERE w.alive AND w.kind = 'daemon' GROUP BY w.version) AS v
    HAVING count(*) > 1
    UNION ALL
    SELECT 'listeners', 'warn',
           format('%s receives no notifications (%s): it polls each second instead', w.name, w.listener),
           'see its log; behind a pooler set database.listen_dsn to a direct connection'
    FROM worker AS w
    -- The condition has the same limit: a worker that has just started may still connect.
    WHERE w.handles
      AND (w.listener = 'degraded'
           OR (w.listener <> 'listening' AND w.started_at < messages.now() - interval '30 seconds'))
    UNION ALL
    SELECT 'unhandled_topics', u.level, format('messages of %s wait, and no live worker handles that topic', u.topic),
           format('start a worker with a handler for it: [topics.%s]', quote_ident(u.topic))
    FROM unhandled AS u
    UNION ALL
    SELECT 'idle_topics', 'warn',
           format(
             '%s publishes to %s, which no live worker handles', string_agg(t.source, ', ' ORDER BY t.source), t.topic),
           format('start a worker with a handler for it: [topics.%s]', quote_ident(t.topic))
    FROM (
      SELECT s.topic, 'the schedule ' || s.name FROM messages.schedule AS s WHERE s.paused_at IS NULL
      UNION ALL
      SELECT s.subscriber, 'the subscription to ' || s.topic FROM messages.subscription AS s
    ) AS t (topic, source)
    WHERE NOT messages.is_handled(t.topic) AND NOT (SELECT n.explains FROM no_worker AS n)
      AND NOT EXISTS (SELECT FROM messages.subscribers(t.topic) AS s WHERE s.subscriber <> t.topic)
      AND t.topic NOT IN (SELECT u.topic FROM unhandled AS u)
    GROUP BY t.topic
  )
  (SELECT f.* FROM found AS f LIMIT 100)
  UNION ALL
  SELECT c.code, 'ok',
         CASE
           WHEN c.code IN ('unhandled_topics', 'idle_topics') AND (SELECT n.explains FROM no_worker AS n)
             OR c.code = 'workers_gone' AND EXISTS (SELECT FROM down) THEN 'see workers'
           ELSE c.said
         END,
         NULL
  FROM (VALUES
    ('workers', (SELECT count(*) FROM worker AS w WHERE w.alive) || ' alive'),
    ('workers_gone', 'every worker that ended has unregistered'),
    ('worker_versions', 'all are of one version'),
    ('listeners', 'every worker receives notifications'),
    ('unhandled_topics', 'a worker handles each topic with waiting messages'),
    ('idle_topics', 'each topic of a schedule or subscription has a worker')) AS c (code, said)
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.code = c.code);
END
$$;
