-- Forget alerts: those that were delivered a week ago, and those that nobody delivered for as long as the archive keeps messages by default.
-- Called by: purge. Bounded: it looks at the p_limit oldest. Locks: the rows it deletes. Result: how many.
CREATE OR REPLACE FUNCTION messages.prune_alerts(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_now  timestamptz := messages.now();
  v_keep interval    := (SELECT d.retention FROM messages.topic AS d WHERE d.topic = '*');
  v_did  bigint;
BEGIN
  DELETE FROM messages.alert AS a
  WHERE a.id IN (SELECT o.id FROM messages.alert AS o ORDER BY o.id LIMIT p_limit)
    AND (a.delivered_at < v_now - interval '7 days' OR a.raised_at < v_now - v_keep);
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
