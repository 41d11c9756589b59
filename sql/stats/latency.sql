-- Returns how long messages waited and handlers ran, by topic, as the daemons measured it (`messages.measure`).
--
-- Arguments: `p_since`: the period until now, in whole minutes. `p_topic`: only this topic.
-- Result: one row per topic that has any measurements. `waits` (from available to claimed), `runs` (calls of the
-- handler) and `wakes` (the waits that a notification ended): how many entries there are; for each the 50th, 95th and
-- 99th percentile in seconds, NULL if there are no entries.
-- Errors: none.
-- Locks: none.
-- Called by: operators, analysts, pgrouse top, pgrouse doctor, the web.
CREATE OR REPLACE FUNCTION messages.latency(p_since interval DEFAULT '1 hour', p_topic text DEFAULT NULL)
RETURNS TABLE (
  topic text,
  waits bigint, wait_p50_s double precision, wait_p95_s double precision, wait_p99_s double precision,
  runs  bigint, run_p50_s  double precision, run_p95_s  double precision, run_p99_s  double precision,
  wakes bigint, wake_p50_s double precision, wake_p95_s double precision, wake_p99_s double precision
)
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT
    s.topic,
    coalesce((SELECT sum(c) FROM unnest(s.waits) AS c), 0)::bigint, wait.q[1], wait.q[2], wait.q[3],
    coalesce((SELECT sum(c) FROM unnest(s.runs)  AS c), 0)::bigint, run.q[1],  run.q[2],  run.q[3],
    coalesce((SELECT sum(c) FROM unnest(s.wakes) AS c), 0)::bigint, wake.q[1], wake.q[2], wake.q[3]
  FROM (
    SELECT a.topic, messages.unpack_histogram(nullif(a.waits, 0)) AS waits,
           messages.unpack_histogram(nullif(a.runs, 0)) AS runs, messages.unpack_histogram(nullif(a.wakes, 0)) AS wakes
    FROM (
      SELECT m.topic, sum(m.waits) AS waits, sum(m.runs) AS runs, sum(m.wakes) AS wakes
      FROM messages.measure AS m
      WHERE m.minute >= (SELECT date_trunc('minute', messages.now() - p_since))
        AND (p_topic IS NULL OR m.topic = p_topic)
      GROUP BY m.topic
    ) AS a
    OFFSET 0
  ) AS s
  CROSS JOIN LATERAL (SELECT messages.quantiles(s.waits, '{0.5,0.95,0.99}') AS q OFFSET 0) AS wait
  CROSS JOIN LATERAL (SELECT messages.quantiles(s.runs,  '{0.5,0.95,0.99}') AS q OFFSET 0) AS run
  CROSS JOIN LATERAL (SELECT messages.quantiles(s.wakes, '{0.5,0.95,0.99}') AS q OFFSET 0) AS wake
  ORDER BY s.topic
$$;
