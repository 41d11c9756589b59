-- Returns the severity of a kind of alert, for every front end: page (messages are not processed, or many die) or
-- ticket (it can wait until tomorrow). The Prometheus rules have the same.
--
-- Errors: none.
-- Locks: none.
-- Called by: open_conditions, condition_level, create_delivery, `pgrouse alert list`.
CREATE OR REPLACE FUNCTION messages.alert_severity(p_kind text)
RETURNS text
LANGUAGE sql
IMMUTABLE
SECURITY DEFINER
AS $$
  SELECT CASE
    WHEN p_kind IN ('workers_down', 'no_worker', 'backlog', 'breaker', 'dead_rate', 'alerts_undelivered') THEN 'page'
    ELSE 'ticket'
  END
$$;
