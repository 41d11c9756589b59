-- The steps of a message that earlier attempts kept, for who holds it now.
-- Called by: workers, before they do a step. p_name: only the step of this name; NULL = all.
-- With strict_lock a lock that ran out is lost. Locks: nothing.
-- Result: name, and the result as text; a row of NULL if nothing is kept. No row: the message is not under this claim, and no step of it may
-- be done.
CREATE OR REPLACE FUNCTION messages.kept_steps(p_id bigint, p_claim_id bigint, p_name text DEFAULT NULL)
RETURNS TABLE (name text, result text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
BEGIN
  RETURN QUERY
  SELECT s.name::text, s.result::text
  FROM messages.message AS m
  LEFT JOIN messages.step AS s ON s.message_id = m.id AND (p_name IS NULL OR s.name = p_name)
  WHERE m.id = p_id AND m.claim_id = p_claim_id AND (m.lock_expires_at > messages.now() OR NOT messages.is_strict(m.topic));
END
$$;
