-- Every sink of alerts with its state, and what waits for it.
-- Read by: everything that shows sinks. Locks: nothing.
-- state: failing, its last delivery failed; no deliverer, no process has asked for its alerts within a minute; else ok.
CREATE OR REPLACE VIEW messages.sink_state
WITH (security_invoker = true) AS
SELECT
  s.name, s.type,
  CASE
    WHEN s.failing_since IS NOT NULL THEN 'failing'
    WHEN s.seen_at < messages.now() - interval '1 minute' THEN 'no deliverer'
    ELSE 'ok'
  END AS state,
  s.held_by, s.seen_at, s.delivered_at, s.failing_since, s.failures,
  CASE WHEN s.failing_since IS NOT NULL THEN s.last_error END AS last_error,
  waiting.messages AS waiting, waiting.since AS waiting_since, aside.messages AS abandoned,
  messages.now() - s.delivered_at AS age
FROM messages.alert_sink AS s
CROSS JOIN LATERAL (
  SELECT count(*) AS messages, min(d.created_at) AS since FROM messages.alert_delivery AS d
  WHERE d.sink = s.name AND d.delivered_at IS NULL AND d.abandoned_at IS NULL) AS waiting
CROSS JOIN LATERAL (
  SELECT count(*) AS messages FROM messages.alert_delivery AS d
  WHERE d.sink = s.name AND d.abandoned_at IS NOT NULL) AS aside;
