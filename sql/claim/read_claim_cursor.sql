-- Returns the place where the last claim of a walk ended.
-- Called by: claim, pick_with_channel, for claims without a given start. Locks: nothing. Result: NULL = no claim of it
-- is known.
CREATE OR REPLACE FUNCTION messages.read_claim_cursor(p_walk text)
RETURNS text
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  RETURN (SELECT c.at FROM messages.claim_cursor AS c WHERE c.walk = p_walk ORDER BY c.n DESC LIMIT 1);
END
$$;
