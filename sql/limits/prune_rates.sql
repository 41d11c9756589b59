-- Delete the rates of channels that hold nothing back and have no message: there may be as many names as users.
-- Called by: prune. Locks: the rows it deletes, skipping those that a claim has. A concurrent claim creates the row
-- again and counts the messages themselves, so nothing is lost. p_percent: how much of the table to check. Result: how
-- many rows.
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
        SELECT FROM messages.message AS m
        WHERE m.topic = o.topic AND m.channel = o.channel AND m.claim_id IS NOT NULL LIMIT 1)
    LIMIT 1000
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
