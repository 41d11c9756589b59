-- The dead messages: archived with a result other than success and cancelled; redriven_as is the message that replaced
-- them.
CREATE OR REPLACE VIEW messages.dead
WITH (security_invoker = true) AS
SELECT
  a.id, a.topic, a.channel, a.key, a.priority, a.payload, a.body, a.headers, a.state, a.created_at, a.attempts,
  a.history,
  a.original_topic, a.redriven_from, a.result, a.error, a.error_fingerprint, a.handled_by, a.archived_at,
  (SELECT r.message_id FROM messages.redrive_log AS r WHERE r.archived_id = a.id) AS redriven_as,
  a.redrives, a.origin_id, a.dlq_moved_at, a.runs
FROM messages.message_archive AS a
WHERE a.result NOT IN ('success', 'cancelled');
