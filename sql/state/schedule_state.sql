-- Every schedule with its state.
-- Read by: everything that shows schedules. Locks: nothing.
-- state: paused; failing, its last tick published nothing because of an error; over, it has no next tick; else on.
CREATE OR REPLACE VIEW messages.schedule_state
WITH (security_invoker = true) AS
SELECT
  s.name, s.cron, s.time_zone, s.topic, s.channel, s.key, s.priority, s.max_attempts, s.timeout, s.backoff,
  s.retention, s.payload, s.headers, s.jitter, s.missed, s.missed_limit, s.while_paused,
  CASE
    WHEN s.paused_at IS NOT NULL THEN 'paused'
    WHEN s.failures > 0 THEN 'failing'
    WHEN s.next_tick IS NULL THEN 'over'
    ELSE 'on'
  END AS state,
  s.paused_at, s.paused_by, s.paused_reason, s.next_tick, s.last_tick, s.last_fired_at, s.last_message_id,
  s.last_error, s.failed_at, s.failures, s.retry_at, s.created_at, s.created_by, s.declared_by
FROM messages.schedule AS s;
