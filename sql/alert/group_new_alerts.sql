-- Take every alert that a sink has not taken yet, and add it to the sink's incidents.
-- Called by: claim_delivery, which holds the row of the sink. Locks: the incidents it changes. Result: how many alerts
-- were new. Nothing is skipped or taken twice, in whatever order transactions commit: new is what the previous snapshot
-- did not show and this statement's snapshot does. An open transaction delays only its own alerts. A new sink, or one
-- restored from another cluster, begins with the undelivered alerts of the last hour.
CREATE OR REPLACE FUNCTION messages.group_new_alerts(p_sink text, p_rules jsonb)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_now      timestamptz := messages.now();
  v_wait     interval := messages.rule_interval(p_rules, 'group_wait');
  v_every    interval := messages.rule_interval(p_rules, 'group_interval');
  v_cluster  text := (SELECT c.system_identifier::text FROM pg_control_system() AS c);
  v_position pg_snapshot := (
    SELECT s.position FROM messages.alert_sink AS s WHERE s.name = p_sink AND s.system_identifier = v_cluster);
  v_new      bigint;
BEGIN
  -- Alerts of another cluster may carry ids of transactions that are still to come here: they would look new forever,
  -- or once more some day.
  IF v_position IS NULL THEN
    UPDATE messages.alert AS a SET xid = NULL WHERE a.xid >= pg_snapshot_xmax(pg_current_snapshot());
  END IF;
  WITH fresh AS MATERIALIZED (
    SELECT a AS alert, a.*
    FROM messages.alert AS a
    WHERE v_position IS NOT NULL AND a.xid >= pg_snapshot_xmin(v_position)
      AND NOT pg_visible_in_snapshot(a.xid, v_position)
    UNION ALL
    SELECT a AS alert, a.*
    FROM messages.alert AS a
    WHERE v_position IS NULL AND a.delivered_at IS NULL AND a.raised_at > v_now - interval '1 hour'
  ), folded AS (
    SELECT
      messages.alert_group(f.alert, p_rules) AS grouped,
      CASE WHEN count(DISTINCT coalesce(f.topic, '')) = 1 THEN min(f.topic) END AS topic,
      CASE WHEN count(DISTINCT coalesce(f.result, '')) = 1 THEN min(f.result) END AS result,
      CASE WHEN count(DISTINCT coalesce(f.error_fingerprint, '')) = 1
        THEN min(f.error_fingerprint) END AS error_fingerprint,
      coalesce(
        sum(f.count) FILTER (WHERE f.kind = 'dead_message' OR f.result NOT IN ('ended', 'closed')), 0
      )::bigint AS count,
      min(f.raised_at) AS first_at, max(f.raised_at) AS last_at, min(f.id) AS first_alert_id,
      max(f.id) AS last_alert_id,
      min(f.first_message_id) AS first_message_id, max(f.last_message_id) AS last_message_id
    FROM fresh AS f
    WHERE messages.wants_alert(f.alert, p_rules)
    GROUP BY messages.alert_group(f.alert, p_rules)
  ), added AS (
    INSERT INTO messages.alert_incident AS i (
      sink, grouped, kind, topic, result, error_fingerprint, state, first_at, last_at, count, pending, due_at,
      first_alert_id, last_alert_id, first_message_id, last_message_id, sample_error, fix)
    SELECT
      p_sink, f.grouped, l.kind, f.topic, CASE WHEN l.kind = 'dead_message' THEN f.result END, f.error_fingerprint,
      CASE WHEN l.kind <> 'dead_message' AND l.result IN ('ended', 'closed') THEN 'resolved' ELSE 'firing' END,
      f.first_at, f.last_at, f.count, f.count, f.first_at + v_wait,
      f.first_alert_id, f.last_alert_id, f.first_message_id, f.last_message_id, l.sample_error, l.fix
    FROM folded AS f
    JOIN fresh AS l ON l.id = f.last_alert_id
    -- The end of what this sink never heard of.
    WHERE f.count > 0 OR EXISTS (
      SELECT FROM messages.alert_incident AS k WHERE k.sink = p_sink AND k.grouped = f.grouped AND k.state <> 'over')
    ORDER BY f.grouped
    ON CONFLICT (sink, grouped) DO UPDATE SET
      topic = CASE WHEN i.topic = excluded.topic THEN i.topic END,
      result = CASE WHEN i.result = excluded.result THEN i.result END,
      error_fingerprint = CASE WHEN i.error_fingerprint = excluded.error_fingerprint THEN i.error_fingerprint END,
      state = excluded.state,
      first_at = CASE WHEN i.state = 'over' THEN excluded.first_at ELSE least(i.first_at, excluded.first_at) END,
      last_at = greatest(i.last_at, excluded.last_at),
      count = CASE WHEN i.state = 'over' THEN 0 ELSE i.count END + excluded.count,
      pending = i.pending + excluded.pending,
      silenced = CASE WHEN i.state = 'over' THEN 0 ELSE i.silenced END,
      notifications = CASE WHEN i.state = 'over' THEN 0 ELSE i.notifications END,
      escalated_at = CASE WHEN i.state = 'over' THEN NULL ELSE i.escalated_at END,
      due_at = CASE
        WHEN excluded.state = 'resolved' THEN excluded.due_at
        WHEN i.pending > 0 AND i.due_at IS NOT NULL THEN i.due_at
        ELSE greatest(excluded.due_at, i.notified_at + v_every)
      END,
      first_alert_id = CASE WHEN i.pending > 0 THEN least(i.first_alert_id, excluded.first_alert_id)
        ELSE excluded.first_alert_id END,
      last_alert_id = greatest(i.last_alert_id, excluded.last_alert_id),
      first_message_id = CASE WHEN i.pending > 0 THEN least(i.first_message_id, excluded.first_message_id)
        ELSE excluded.first_message_id END,
      last_message_id = greatest(i.last_message_id, excluded.last_message_id),
      sample_error = excluded.sample_error,
      fix = excluded.fix
    RETURNING 1
  )
  -- pg_current_snapshot() is the one that this whole statement reads by.
  UPDATE messages.alert_sink AS s
  SET position = pg_current_snapshot(), system_identifier = v_cluster
  FROM (SELECT count(*) AS new FROM fresh AS f) AS f
  WHERE s.name = p_sink AND (f.new > 0 OR v_position IS NULL)
  RETURNING f.new INTO v_new;
  RETURN coalesce(v_new, 0);
END
$$;
