-- Archive messages whose TTL is over as expired. Locked messages are never expired: they may still succeed.
-- Called by: tick; claim does the same with expired messages that it finds. Locks: the rows, skipping those that others hold.
-- Result: how many.
CREATE OR REPLACE FUNCTION messages.expire_messages(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now timestamptz := messages.now();
  v_ids bigint[] := ARRAY(
    SELECT m.id FROM messages.message AS m
    WHERE m.expires_at IS NOT NULL AND m.claim_id IS NULL AND m.expires_at <= v_now
    ORDER BY m.expires_at
    LIMIT p_limit
    FOR UPDATE SKIP LOCKED);
BEGIN
  RETURN CASE WHEN v_ids = '{}' THEN 0 ELSE messages.archive_expired(v_ids) END;
END
$$;
