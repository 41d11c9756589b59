-- Forget what limits remember about channels that hold nothing back and have no message: their names may be as many as there are users.
-- Called by: prune. Locks: the rows it deletes, skipping those that a claim has. A claim that comes meanwhile makes the row anew and counts
-- from the messages themselves, so nothing is lost. p_percent: so much of the table is looked at. Result: how many rows.
CREATE OR REPLACE FUNCTION messages.prune_rates(p_percent real DEFAULT 1)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_now timestamptz := messages.now();
  v_did bigint;
BEGIN
  DELETE FROM messages.rate AS r
  WHERE r.ctid = ANY (ARRAY(
    SELECT o.ctid
    FROM messages.rate AS o TABLESAMPLE SYSTEM (p_percent)
    WHERE o.kind = 'channel' AND o.free_at <= v_now AND coalesce(o.blocked_until <= v_now, true)
      AND NOT EXISTS (
        SELECT FROM messages.message AS m
        WHERE m.topic = o.topic AND m.channel = o.channel AND m.channel IS NOT NULL AND m.claim_id IS NULL LIMIT 1)
      AND NOT EXISTS (
        SELECT FROM messages.message AS m WHERE m.topic = o.topic AND m.channel = o.channel AND m.claim_id IS NOT NULL LIMIT 1)
    LIMIT 1000
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
