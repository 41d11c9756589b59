-- End what is over for a sink: groups of dead messages in which nothing died for the time between two messages, and conditions that ended
-- before this sink was told of them (silence, or an escalation that did not come to it).
-- Called by: deliver_next, before and after it takes new alerts. Locks: the incidents it changes. Result: how many ended.
-- What was held back by a silence that still lasts is not told any more; its number stays in silenced.
CREATE OR REPLACE FUNCTION messages.close_incidents(p_sink text, p_rules jsonb)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_quiet   timestamptz := messages.now() - messages.seconds_of(p_rules, 'every');
  v_patient boolean := p_rules -> 'after' IS NOT NULL OR p_rules -> 'after_count' IS NOT NULL;
  v_did     bigint;
BEGIN
  UPDATE messages.alert_incident AS i
  SET state = 'over', silenced = i.silenced + i.pending, pending = 0, due_at = NULL
  WHERE i.sink = p_sink
    AND CASE
      WHEN i.kind = 'dead_message' THEN i.state = 'firing' AND i.last_at < v_quiet
      ELSE i.state = 'resolved' AND i.told = 0
    END
    AND ((i.kind = 'dead_message' AND i.pending = 0)
      OR (v_patient AND i.escalated_at IS NULL)
      OR messages.silenced_until(i.kind, i.topic, i.error_fingerprint) IS NOT NULL);
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
