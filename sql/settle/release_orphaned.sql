-- Releases messages that a worker holds without knowing it: their claim was committed, but its answer was lost on the
-- way. Workers call it after a claim failed. While the server's process for the lost connection still runs, it may
-- commit the claim after this call: end that process with `pg_terminate_backend`, and call again once it is gone.
--
-- Arguments: `p_worker`: exactly the name that was used in `claim`; no two workers that claim at the same time may
-- share it. `p_known`: the ids that the worker does hold; NULL releases nothing.
-- Result: the ids that were released: their place in the queue and their attempt count are as before the claim.
-- Errors: as `messages.release`.
-- Locks: the rows.
-- Repeat: safe: the second call finds nothing.
-- Called by: a connection of a daemon after a claim failed, under the name that only this connection claims with.
-- Inside: Without this such a message would wait for its lock to expire, and would lose an attempt in which nothing
-- ran.
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
  WHERE m.claim_id IS NOT NULL AND m.locked_by = p_worker
    AND p_known IS NOT NULL AND m.id NOT IN (SELECT k.id FROM unnest(p_known) AS k (id));
  RETURN CASE WHEN v_ids IS NULL THEN '{}' ELSE messages.return_attempts(v_ids, v_claims, NULL, NULL, NULL, NULL) END;
END
$$;
