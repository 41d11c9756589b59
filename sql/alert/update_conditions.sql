-- Evaluates the `messages.conditions`, stores them with the number of their messages in `messages.condition`, and
-- raises one alert when a condition begins and one when it ends, as rows of `messages.alert`. One that a wider problem
-- explains now has not ended: it goes on, or ends, when that is over. A listener counts as
-- degraded when it has been degraded for `listener_for`; a breaker raises its own alerts. A call checks what waits in
-- at most `p_limit` topics; the next call continues behind them.
--
-- Result: how many began or ended.
-- Errors: none.
-- Locks: a row of `messages.mutex`: if several sessions call it at once, only one does the work.
-- Called by: tick, so that it works without any daemon.
CREATE OR REPLACE FUNCTION messages.update_conditions(p_limit integer DEFAULT 2000)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_hold  interval := (SELECT b.listener_for FROM messages.alert_threshold AS b WHERE b.topic = '*');
  v_after text := messages.tick_cursor('update_conditions');
  v_did   bigint;
  v_kinds text[];
BEGIN
  IF NOT messages.lock_mutex('update_conditions') THEN
    RETURN 0;
  END IF;
  PERFORM messages.tick_topics('update_conditions', p_limit);
  WITH wrong AS MATERIALIZED (
    SELECT c.kind, coalesce(c.topic, '') AS topic, c.since, c.what, c.fix
    FROM messages.conditions(v_after, p_limit) AS c
  ), explained AS MATERIALIZED (
    SELECT e.* FROM messages.explained_conditions() AS e
  ), counted AS MATERIALIZED (
    SELECT c.* FROM messages.count_conditions((
      SELECT array_agg(CASE w.kind WHEN 'workers_down' THEN '*' ELSE w.topic END)
      FROM wrong AS w
      WHERE w.kind IN ('workers_down', 'no_worker', 'backlog', 'breaker', 'dead_rate'))) AS c
  ), known AS (
    INSERT INTO messages.condition AS k (kind, topic, since, count, what, fix, notified_at)
    SELECT w.kind, w.topic, w.since,
           CASE
             WHEN w.kind = 'dead_rate' THEN c.dead
             WHEN w.kind IN ('workers_down', 'no_worker', 'backlog', 'breaker') THEN c.ready
           END,
           w.what, w.fix,
           CASE WHEN w.kind NOT IN ('listener_degraded', 'breaker') THEN v_now END
    FROM wrong AS w
    LEFT JOIN counted AS c ON c.topic = w.topic
    ORDER BY w.kind, w.topic
    ON CONFLICT (kind, topic) WHERE ended_at IS NULL DO UPDATE
    SET count = excluded.count, what = excluded.what, fix = excluded.fix,
        since = CASE WHEN k.kind = 'breaker' THEN excluded.since ELSE k.since END,
        notified_at = coalesce(
          k.notified_at, CASE WHEN k.since <= v_now - v_hold AND k.kind <> 'breaker' THEN v_now END)
    WHERE (k.count, k.what, k.fix) IS DISTINCT FROM (excluded.count, excluded.what, excluded.fix)
      OR (k.notified_at IS NULL AND k.since <= v_now - v_hold AND k.kind <> 'breaker')
    RETURNING k.*
  ), gone AS (
    UPDATE messages.condition AS k
    SET ended_at = v_now
    WHERE k.ended_at IS NULL AND NOT EXISTS (SELECT FROM wrong AS w WHERE w.kind = k.kind AND w.topic = k.topic)
      AND NOT EXISTS (
        SELECT FROM explained AS e WHERE e.kind = k.kind AND coalesce(e.topic, k.topic) = k.topic)
    RETURNING k.*
  ), raised AS (
    INSERT INTO messages.alert (kind, topic, result, sample_error, fix, raised_at)
    SELECT r.kind, nullif(r.topic, ''), r.result, left(r.what, 1000), r.fix, v_now
    FROM (
      SELECT k.kind, k.topic, 'begun' AS result, k.what, k.fix FROM known AS k WHERE k.notified_at = v_now
      UNION ALL
      SELECT g.kind, g.topic, 'ended', g.what, g.fix FROM gone AS g WHERE g.notified_at IS NOT NULL
    ) AS r
    ORDER BY r.kind, r.topic
    RETURNING alert.kind
  )
  SELECT count(*), array_agg(r.kind) INTO v_did, v_kinds FROM raised AS r;
  IF v_did > 0 THEN
    PERFORM messages.notify('alert', v_kinds);
  END IF;
  RETURN v_did;
END
$$;

-- Count the messages of topics, as messages.stats does: those that are ready, and those that died within an hour and
-- were not redriven.
-- Called by: update_conditions. p_topics: their names; * = all. Locks: nothing.
-- Result: a row for each topic, and one with an empty name for all of them together. No row for NULL.
CREATE OR REPLACE FUNCTION messages.count_conditions(p_topics text[])
RETURNS TABLE (topic text, ready bigint, dead bigint)
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  IF p_topics IS NULL THEN
    RETURN;
  END IF;
  RETURN QUERY
  SELECT coalesce(s.topic, ''), sum(s.ready)::bigint, sum(d.count)::bigint
  FROM messages.stats(p_topics => p_topics) AS s
  CROSS JOIN LATERAL (
    SELECT sum(c.count - c.redriven) AS count
    FROM messages.dead_count AS c
    WHERE c.topic = s.topic COLLATE "C"
      AND c.died_at >= date_bin('10 minutes', messages.now() - interval '1 hour', 'epoch')
  ) AS d
  GROUP BY GROUPING SETS ((s.topic), ());
END
$$;
