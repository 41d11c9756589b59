-- Release messages that a worker holds without knowing it: the claim was committed, but its answer was lost.
-- Called by: a connection of a daemon after a claim failed, under the name that only this connection claims with. p_known: what it knows to
-- hold; NULL releases nothing, since all of it may be known.
-- Without this such a message would wait for its lock to expire, and would lose an attempt in which nothing ran.
-- Locks: the rows. Result: the ids that were released.
CREATE OR REPLACE FUNCTION messages.release_orphaned(p_worker text, p_known bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids    bigint[];
  v_claims bigint[];
BEGIN
  SELECT array_agg(m.id), array_agg(m.claim_id)
  INTO v_ids, v_claims
  FROM messages.message AS m
  WHERE m.claim_id IS NOT NULL AND m.locked_by = p_worker AND p_known IS NOT NULL AND m.id NOT IN (SELECT k.id FROM unnest(p_known) AS k (id));
  RETURN CASE WHEN v_ids IS NULL THEN '{}' ELSE messages.return_attempts(v_ids, v_claims, NULL, NULL, NULL, NULL) END;
END
$$;
