-- Sends messages to sinks once more, after the messages that wait there: those that were delivered or abandoned in the
-- last `p_since`, or the one with a given id. Each has its own id and names the original message as `replay_of`.
--
-- Arguments: `p_sink`: only to this sink; NULL: to every sink.
-- Result: how many.
-- Errors: 22023 for a time outside of 1 s to 3650 days.
-- Locks: the rows it inserts.
-- Repeat: sends them once more.
-- Called by: operators (`pgrouse alert replay`).
CREATE OR REPLACE FUNCTION messages.replay_alerts(
  p_sink text DEFAULT NULL, p_since interval DEFAULT '1 hour', p_id uuid DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_did bigint;
BEGIN
  IF p_since IS NULL OR p_since NOT BETWEEN '1 s' AND '3650 days' THEN
    RAISE EXCEPTION 'since of a replay is %', coalesce(p_since::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use an interval from 1 s to 3650 days';
  END IF;
  INSERT INTO messages.alert_delivery AS n (
    sink, message, rules, grouped, first_alert_id, last_alert_id, created_at, replay_of)
  SELECT d.sink, d.message || jsonb_build_object('replay_of', d.id), d.rules, d.grouped, d.first_alert_id,
         d.last_alert_id, messages.now(), d.id
  FROM messages.alert_delivery AS d
  WHERE (p_sink IS NULL OR d.sink = p_sink)
    AND CASE WHEN p_id IS NOT NULL THEN d.id = p_id
      ELSE d.replay_of IS NULL AND d.created_at >= messages.now() - p_since END
    AND num_nonnulls(d.delivered_at, d.abandoned_at) > 0
  ORDER BY d.seq;
  GET DIAGNOSTICS v_did = ROW_COUNT;
  IF v_did > 0 THEN
    PERFORM messages.audit_action(
      'alert.replay', NULL, coalesce(p_id::text, p_sink), jsonb_build_object('messages', v_did));
    PERFORM messages.notify('alert', ARRAY['replay']);
  END IF;
  RETURN v_did;
END
$$;
