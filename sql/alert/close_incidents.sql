-- Close what is over for a sink: groups of dead messages with no death for the time between two notifications, and conditions that ended
-- before this sink reported them (because of a silence, or an escalation that did not reach it).
-- Called by: claim_delivery, before and after it takes new alerts. Locks: the incidents it changes. Result: how many ended.
-- What an active silence held back is not reported; its count stays in silenced.
CREATE OR REPLACE FUNCTION messages.close_incidents(p_sink text, p_rules jsonb)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_quiet   timestamptz := messages.now() - messages.rule_interval(p_rules, 'group_interval');
  v_patient boolean := p_rules -> 'escalate_after' IS NOT NULL OR p_rules -> 'escalate_count' IS NOT NULL;
  v_did     bigint;
BEGIN
  UPDATE messages.alert_incident AS i
  SET state = 'over', silenced = i.silenced + i.pending, pending = 0, due_at = NULL
  WHERE i.sink = p_sink
    AND CASE
      WHEN i.kind = 'dead_message' THEN i.state = 'firing' AND i.last_at < v_quiet
      ELSE i.state = 'resolved' AND i.notifications = 0
    END
    AND ((i.kind = 'dead_message' AND i.pending = 0)
      OR (v_patient AND i.escalated_at IS NULL)
      OR messages.silenced_until(i.kind, i.topic, i.error_fingerprint) IS NOT NULL);
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
