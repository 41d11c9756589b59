-- The blocked messages that no tick has checked with a transaction id of its own (see propagate_missed_ends), the
-- earliest due first.
-- Called by: tick, before it locks anything, and propagate_missed_ends. Locks: nothing. Result: their ids; NULL if this
-- transaction has a number already.
CREATE OR REPLACE FUNCTION messages.new_blocked(p_limit integer)
RETURNS bigint[]
LANGUAGE plpgsql
AS $$
BEGIN
  IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RETURN NULL;
  END IF;
  RETURN ARRAY(
    SELECT k.id
    FROM messages.blocked_message AS k
    WHERE k.check_at <= (SELECT messages.now())
      AND (k.checked_below IS NULL OR k.checked_below >= pg_snapshot_xmax(pg_current_snapshot()))
    ORDER BY k.check_at
    LIMIT p_limit);
END
$$;
