-- Returns the messages that a caller tried to settle and that were no longer locked by the caller's claims.
-- Called by: complete, reject, fail, retry, defer and release, after their statement. Not granted to any role. A
-- message that is archived under the same claim and with the intended result was settled by an earlier try whose answer
-- was lost: it does not count as lost. Under the same claim with another result (cancelled, lock_expired) it was lost.
-- Volatile on purpose: the earlier try may have committed while this one waited for the row, after its snapshot was
-- taken.
-- Locks: nothing. Result: the lost ids; empty, at no cost, when all were settled.
CREATE OR REPLACE FUNCTION messages.lost_ids(p_ids bigint[], p_claim_ids bigint[], p_settled bigint[], p_result text)
RETURNS bigint[]
LANGUAGE plpgsql
AS $$
BEGIN
  IF cardinality(p_settled) >= cardinality(p_ids) THEN
    RETURN '{}'::bigint[];
  END IF;
  RETURN ARRAY(
    SELECT e.id
    FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id)
    WHERE e.id NOT IN (SELECT s.id FROM unnest(p_settled) AS s (id))
      AND NOT EXISTS (
        SELECT FROM messages.message_archive AS a
        WHERE a.id = ANY (ARRAY[e.id]) AND a.claim_id = e.claim_id AND a.result = p_result)
  );
END
$$;
