-- Evaluates the `messages.conditions` and raises one alert when a condition begins and one when it ends, as rows of
-- `messages.alert`. A listener counts as degraded when it has been degraded for `listener_for`; a breaker raises its
-- own alerts. A call checks what waits in at most `p_limit` topics; the next call continues behind them.
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
    FROM messages.conditions(v_after, p_limit) AS c WHERE c.kind <> 'breaker'
  ), known AS (
    INSERT INTO messages.condition AS k (kind, topic, since, what, fix, notified_at)
    SELECT w.kind, w.topic, w.since, w.what, w.fix, CASE WHEN w.kind <> 'listener_degraded' THEN v_now END
    FROM wrong AS w
    ORDER BY w.kind, w.topic
    ON CONFLICT (kind, topic) DO UPDATE
    SET what = excluded.what, fix = excluded.fix,
        notified_at = coalesce(k.notified_at, CASE WHEN k.since <= v_now - v_hold THEN v_now END)
    WHERE (k.what, k.fix) IS DISTINCT FROM (excluded.what, excluded.fix)
      OR (k.notified_at IS NULL AND k.since <= v_now - v_hold)
    RETURNING k.*
  ), gone AS (
    DELETE FROM messages.condition AS k
    WHERE NOT EXISTS (SELECT FROM wrong AS w WHERE w.kind = k.kind AND w.topic = k.topic)
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
