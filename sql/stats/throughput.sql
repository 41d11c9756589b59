-- Returns how many attempts ended over time, and how, for charts.
--
-- Arguments: `p_since`: from a minute to 8 days. `p_topic`: only this topic. `p_worker`: only this worker, with all its
-- topics; not together with a topic. `p_bars`: the maximum number of rows.
-- Result: one row per bar, the oldest first, also where nothing ended. Each bar covers as many whole minutes as needed.
-- `at`: when the bar begins; `s`: how many of its seconds have passed, so that a rate is `success / s`. The counts are
-- those of `messages.measure`, the percentiles those of `messages.latency`.
-- Errors: 22023 for a time outside of a minute to 8 days, a number of bars outside of 1 to 1000, or a topic and a
-- worker together.
-- Locks: none.
-- Called by: operators, analysts, pgrouse top, the web.
CREATE OR REPLACE FUNCTION messages.throughput(
  p_since interval DEFAULT '1 hour', p_topic text DEFAULT NULL, p_bars integer DEFAULT 60, p_worker text DEFAULT NULL
)
RETURNS TABLE (
  at timestamptz, s double precision,
  success bigint, rejected bigint, failed bigint, lock_expired bigint, retried bigint, deferred bigint,
  released bigint, lost bigint,
  wait_p50_s double precision, wait_p95_s double precision, wait_p99_s double precision,
  run_p50_s  double precision, run_p95_s  double precision, run_p99_s  double precision,
  wake_p50_s double precision, wake_p95_s double precision, wake_p99_s double precision
)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_width interval;
  v_first timestamptz;
BEGIN
  IF p_since NOT BETWEEN '1 minute' AND '8 days' THEN
    RAISE EXCEPTION 'throughput is asked for the last %', p_since
      USING ERRCODE = '22023', HINT = 'use an interval from 1 minute to 8 days';
  END IF;
  IF p_bars IS NULL OR p_bars NOT BETWEEN 1 AND 1000 THEN
    RAISE EXCEPTION 'bars of throughput are %', coalesce(p_bars::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 1000';
  END IF;
  IF num_nonnulls(p_topic, p_worker) = 2 THEN
    RAISE EXCEPTION 'throughput of topic % by worker % is not measured', p_topic, p_worker
      USING ERRCODE = '22023', HINT = 'ask for a topic, or for a worker';
  END IF;
  v_width := ceil(extract(epoch FROM p_since) / 60 / p_bars) * interval '1 minute';
  -- Bars begin at multiples of their width, so that a chart does not flicker from one look to the next.
  v_first := date_bin(v_width, v_now, 'epoch') - v_width * (
    ceil(extract(epoch FROM p_since) / extract(epoch FROM v_width)) - 1);
  RETURN QUERY
  SELECT
    b.at, extract(epoch FROM least(b.at + v_width, v_now) - b.at)::double precision,
    coalesce(a.success, 0), coalesce(a.rejected, 0), coalesce(a.failed, 0), coalesce(a.lock_expired, 0),
    coalesce(a.retried, 0), coalesce(a.deferred, 0), coalesce(a.released, 0), coalesce(a.lost, 0),
    wait.q[1], wait.q[2], wait.q[3], run.q[1], run.q[2], run.q[3], wake.q[1], wake.q[2], wake.q[3]
  FROM generate_series(v_first, v_now, v_width) AS b (at)
  LEFT JOIN (
    SELECT
      date_bin(v_width, m.minute, 'epoch') AS at,
      sum(m.success)::bigint AS success, sum(m.rejected)::bigint AS rejected, sum(m.failed)::bigint AS failed,
      sum(m.lock_expired)::bigint AS lock_expired, sum(m.retried)::bigint AS retried,
      sum(m.deferred)::bigint AS deferred,
      sum(m.released)::bigint AS released, sum(m.lost)::bigint AS lost,
      sum(m.waits) AS waits, sum(m.runs) AS runs, sum(m.wakes) AS wakes
    FROM (
      SELECT t.minute, t.success, t.rejected, t.failed, t.lock_expired, t.retried, t.deferred, t.released, t.lost,
             t.waits, t.runs, t.wakes
      FROM messages.measure AS t
      WHERE t.minute >= v_first AND p_worker IS NULL AND (p_topic IS NULL OR t.topic = p_topic)
      UNION ALL
      SELECT w.minute, w.success, w.rejected, w.failed, w.lock_expired, w.retried, w.deferred, w.released, w.lost,
             w.waits, w.runs, w.wakes
      FROM messages.worker_measure AS w
      WHERE w.minute >= v_first AND w.worker = p_worker
    ) AS m
    GROUP BY 1
  ) AS a ON a.at = b.at
  CROSS JOIN LATERAL (
    SELECT messages.quantiles(messages.unpack_histogram(nullif(a.waits, 0)), '{0.5,0.95,0.99}') AS q OFFSET 0
  ) AS wait
  CROSS JOIN LATERAL (
    SELECT messages.quantiles(messages.unpack_histogram(nullif(a.runs, 0)),  '{0.5,0.95,0.99}') AS q OFFSET 0
  ) AS run
  CROSS JOIN LATERAL (
    SELECT messages.quantiles(messages.unpack_histogram(nullif(a.wakes, 0)), '{0.5,0.95,0.99}') AS q OFFSET 0
  ) AS wake
  ORDER BY b.at;
END
$$;
