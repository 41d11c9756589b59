-- Reports the conditions about the work itself: backlogs, dying messages, open breakers, undelivered alerts, by the
-- thresholds of `messages.alert_threshold`. What pages is a failure, everything else a warning.
--
-- Result: for each code what is wrong with it, by topic, or one row with level `ok`. The codes are `backlog`,
-- `dead_rate`, `breakers`, `alerts`.
-- Errors: none.
-- Locks: none.
-- Cost: that of conditions, and the alerts that were given up.
-- Called by: doctor, `pgrouse doctor`.
-- Inside: Listeners, pg_cron, workers and snapshots are covered in more detail by examine_workers and
-- examine_snapshots.
CREATE OR REPLACE FUNCTION messages.examine_conditions()
RETURNS TABLE (code text, level text, what text, fix text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  WITH found (code, level, what, fix) AS MATERIALIZED (
    SELECT k.code, messages.condition_level(c.kind), c.what, c.fix
    FROM messages.conditions() AS c
    JOIN (VALUES
      ('backlog', 'backlog'),
      ('dead_rate', 'dead_rate'),
      ('breaker', 'breakers'),
      ('alerts_undelivered', 'alerts')) AS k (kind, code) ON k.kind = c.kind
    UNION ALL
    SELECT 'alerts', 'warn', format(
             CASE count(*)
               WHEN 1 THEN '%s message to the sink %s was abandoned in the last week'
               ELSE '%s messages to the sink %s were abandoned in the last week'
             END, count(*), d.sink),
           '`pgrouse alert replay` sends them again'
    FROM messages.alert_delivery AS d
    WHERE d.abandoned_at > messages.now() - interval '7 days'
    GROUP BY d.sink
    UNION ALL
    -- The condition begins when something waits for it.
    SELECT 'alerts', 'warn', format('no process delivers to the sink %s', s.name),
           format('start a daemon or a web server whose configuration has it, or `pgrouse alert forget %s`', s.name)
    FROM messages.sink_state AS s
    WHERE s.state = 'no deliverer'
      AND NOT EXISTS (SELECT FROM messages.conditions() AS c WHERE c.kind = 'alerts_undelivered')
  )
  (SELECT f.* FROM found AS f LIMIT 200)
  UNION ALL
  SELECT c.code, 'ok', c.said, c.hint
  FROM (VALUES
    ('backlog', 'nothing has been ready for too long', NULL),
    ('dead_rate', 'no topic loses more messages than usual', NULL),
    ('breakers', 'all are closed', NULL),
    ('alerts',
     CASE WHEN EXISTS (SELECT FROM messages.alert_sink) THEN 'every sink accepts them' ELSE 'no sink is registered' END,
     CASE WHEN NOT EXISTS (SELECT FROM messages.alert_sink)
       THEN 'configure one in [alerts]: a daemon registers it when it starts' END)) AS c (code, said, hint)
  WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.code = c.code);
END
$$;
