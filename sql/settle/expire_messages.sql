-- Archives messages as `expired` that were not processed within their time to live (`expires_at`). A locked message
-- never expires, because it may still succeed. `claim` does the same with expired messages that it finds.
--
-- Result: how many.
-- Errors: none.
-- Locks: the rows, skipping those that others hold.
-- Called by: tick.
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
