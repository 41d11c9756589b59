-- The messages that wait for others and that no tick has looked at with a number of its own (see follow_ends), those that are due first.
-- Called by: tick, before it locks anything, and follow_ends. Locks: nothing. Result: their ids; NULL if this transaction has a number already.
CREATE OR REPLACE FUNCTION messages.new_parked(p_limit integer)
RETURNS bigint[]
LANGUAGE plpgsql
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
  IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RETURN NULL;
  END IF;
  RETURN ARRAY(
    SELECT k.id
    FROM messages.parked AS k
    WHERE k.look_at <= (SELECT messages.now()) AND (k.seen_below IS NULL OR k.seen_below >= pg_snapshot_xmax(pg_current_snapshot()))
    ORDER BY k.look_at
    LIMIT p_limit);
END
$$;
