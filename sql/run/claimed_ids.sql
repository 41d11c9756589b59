-- List the messages that are still locked under these claims: for a worker that knows its claims but not their messages, after a restart or
-- to settle the rest.
-- Called by: consume on Spark. Locks: nothing. Result: pairs of id and claim_id, by id.
-- It reads all locked rows, by their index: they are few.
CREATE OR REPLACE FUNCTION messages.claimed_ids(p_claim_ids bigint[])
RETURNS TABLE (id bigint, claim_id bigint)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  SELECT m.id, m.claim_id
  FROM messages.message AS m
  WHERE m.claim_id IS NOT NULL AND m.claim_id = ANY (p_claim_ids)
  ORDER BY m.id;
END
$$;
