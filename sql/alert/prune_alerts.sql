-- Delete alerts: delivered ones after a week, undelivered ones after the default retention of the archive.
-- Also deletes sent notifications, closed incidents and conditions a week after their end, silences a month after
-- theirs, and sinks without a delivery for a month.
-- Called by: purge. Bounded: it checks the p_limit oldest of each. Locks: the rows it deletes. Result: how many.
CREATE OR REPLACE FUNCTION messages.prune_alerts(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_now  timestamptz := messages.now();
  v_keep interval    := (SELECT d.retention FROM messages.topic AS d WHERE d.topic = '*');
  v_week timestamptz := v_now - interval '7 days';
  v_did  bigint;
  v_all  bigint := 0;
BEGIN
  DELETE FROM messages.alert AS a
  WHERE a.id IN (SELECT o.id FROM messages.alert AS o ORDER BY o.id LIMIT p_limit)
    AND (a.delivered_at < v_week OR a.raised_at < v_now - v_keep);
  GET DIAGNOSTICS v_did = ROW_COUNT;
  v_all := v_all + v_did;
  DELETE FROM messages.alert_delivery AS d
  WHERE d.id IN (SELECT o.id FROM messages.alert_delivery AS o ORDER BY o.created_at LIMIT p_limit)
    AND coalesce(d.delivered_at, d.abandoned_at) < v_week;
  GET DIAGNOSTICS v_did = ROW_COUNT;
  v_all := v_all + v_did;
  DELETE FROM messages.alert_incident AS i
  WHERE (i.sink, i.grouped) IN (
    SELECT o.sink, o.grouped FROM messages.alert_incident AS o
    WHERE o.state = 'over' AND o.last_at < v_week LIMIT p_limit);
  GET DIAGNOSTICS v_did = ROW_COUNT;
  v_all := v_all + v_did;
  DELETE FROM messages.condition AS c
  WHERE c.id IN (SELECT o.id FROM messages.condition AS o WHERE o.ended_at < v_week LIMIT p_limit);
  GET DIAGNOSTICS v_did = ROW_COUNT;
  v_all := v_all + v_did;
  DELETE FROM messages.silence AS s WHERE least(s.ended_at, s.until) < v_now - interval '30 days';
  GET DIAGNOSTICS v_did = ROW_COUNT;
  v_all := v_all + v_did;
  DELETE FROM messages.alert_sink AS s WHERE s.seen_at < v_now - interval '30 days';
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_all + v_did;
END
$$;
