-- Delete old claim cursors: all but the newest of each walk, and that too if nothing was claimed for an hour.
-- Called by: prune. Locks: the rows it deletes. Result: how many rows.
CREATE OR REPLACE FUNCTION messages.prune_claim_cursors(p_limit integer DEFAULT 10000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_did bigint;
BEGIN
  DELETE FROM messages.claim_cursor AS c
  WHERE c.ctid = ANY (ARRAY(
    SELECT o.ctid FROM messages.claim_cursor AS o
    WHERE o.noted_at < clock_timestamp() - interval '1 hour'
       OR (SELECT true FROM messages.claim_cursor AS later WHERE later.walk = o.walk AND later.n > o.n LIMIT 1)
    LIMIT p_limit
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
