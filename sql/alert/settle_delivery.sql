-- Records the outcome of a message. `p_error` NULL: it has arrived, and its alerts count as delivered. Otherwise the
-- reason, and when to try again; later messages of the sink wait for that, and continue when the message is abandoned.
--
-- Result: false = refused: another deliverer now holds this sink, or the message is already settled.
-- Errors: 55P03 if the rows could not be locked within 5 s.
-- Locks: the sink's row, the rows of the alerts that the message reports.
-- Repeat: safe.
-- Called by: the deliverer that got it from claim_delivery.
CREATE OR REPLACE FUNCTION messages.settle_delivery(
  p_sink text, p_fence bigint, p_id uuid, p_error text DEFAULT NULL, p_retry_in interval DEFAULT '1 minute',
  p_abandon boolean DEFAULT false
)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET lock_timeout = '5s'
AS $$
DECLARE
  v_now      timestamptz := messages.now();
  v_delivery messages.alert_delivery;
BEGIN
  PERFORM FROM messages.alert_sink AS s WHERE s.name = p_sink AND s.fence = p_fence FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE messages.alert_delivery AS d
  SET delivered_at = CASE WHEN p_error IS NULL THEN v_now END,
      abandoned_at = CASE WHEN p_error IS NOT NULL AND p_abandon THEN v_now END,
      retry_at = CASE WHEN p_error IS NOT NULL AND NOT p_abandon THEN v_now + p_retry_in END,
      last_error = coalesce(left(p_error, 1000), d.last_error)
  WHERE d.id = p_id AND d.sink = p_sink AND d.delivered_at IS NULL AND d.abandoned_at IS NULL
  RETURNING d.* INTO v_delivery;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE messages.alert_sink AS s
  SET delivered_at = CASE WHEN p_error IS NULL THEN v_now ELSE s.delivered_at END,
      failing_since = CASE WHEN p_error IS NOT NULL THEN coalesce(s.failing_since, v_now) END,
      failures = CASE WHEN p_error IS NOT NULL THEN s.failures + 1 ELSE 0 END,
      last_error = coalesce(left(p_error, 1000), s.last_error)
  WHERE s.name = p_sink;
  IF p_error IS NULL THEN
    UPDATE messages.alert AS a SET delivered_at = v_now
    WHERE a.delivered_at IS NULL AND a.id BETWEEN v_delivery.first_alert_id AND v_delivery.last_alert_id
      AND messages.wants_alert(a, v_delivery.rules)
      AND messages.alert_group(a, v_delivery.rules) IN (SELECT unnest(v_delivery.grouped));
  END IF;
  RETURN true;
END
$$;
