-- Returns the messages that are still under these claims: for a worker that knows its claims but not the messages in
-- them.
--
-- Result: pairs, ordered by id.
-- Errors: none.
-- Locks: none.
-- Cost: it reads every locked row; there are few of them.
-- Repeat: it only reads.
-- Called by: consume on Spark.
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
