-- Returns what keeps alerts from being raised or delivered; NULL = nothing. It is asked before each heartbeat to an
-- outside service: without one, that service reports that alerting itself does not work.
--
-- Result: nothing has evaluated the conditions for 3 minutes; or a sink has failed, or been without a deliverer, for
-- longer than `undelivered_for` of `messages.alert_threshold` (15 minutes if that is 0).
-- Errors: none.
-- Locks: none.
-- Cost: a few rows.
-- Called by: deliverers, every `alerts.heartbeat_interval`.
CREATE OR REPLACE FUNCTION messages.alerting_problem()
RETURNS text
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT coalesce(
    (SELECT 'no maintenance has evaluated the conditions for 3 minutes'
     WHERE NOT EXISTS (
       SELECT FROM messages.tick_mark AS k
       WHERE k.task = 'update_conditions' AND k.ran_at > clock_timestamp() - interval '3 minutes')),
    (SELECT format('sink %s: %s', s.name, s.state)
     FROM messages.sink_state AS s
     CROSS JOIN messages.alert_threshold AS b
     WHERE b.topic = '*' AND s.state <> 'ok'
       AND coalesce(s.failing_since, s.seen_at)
         < messages.now() - coalesce(nullif(b.undelivered_for, '0'), interval '15 minutes')
     ORDER BY s.name
     LIMIT 1))
$$;
