-- The steps of a message that earlier attempts kept, for who holds it now.
-- Called by: workers, when the first step of an attempt begins. Locks: nothing.
-- Result: name, and the result as text; no row if the message is not under this claim.
CREATE OR REPLACE FUNCTION messages.kept_steps(p_id bigint, p_claim_id bigint)
RETURNS TABLE (name text, result text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
  RETURN QUERY
  SELECT s.name::text, s.result::text
  FROM messages.step AS s
  WHERE s.message_id = p_id
    AND EXISTS (SELECT FROM messages.message AS m WHERE m.id = p_id AND m.claim_id = p_claim_id);
END
$$;
