-- Returns which of the messages whose lock was lost were cancelled under exactly these claims.
--
-- Errors: none.
-- Locks: none.
-- Called by: workers, after a heartbeat reported the loss: handlers may need to know the reason.
CREATE OR REPLACE FUNCTION messages.cancelled_ids(p_ids bigint[], p_claim_ids bigint[])
RETURNS bigint[]
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT ARRAY(
    SELECT e.id
    FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id)
    WHERE EXISTS (
      SELECT FROM messages.message_archive AS a
      WHERE a.id = ANY (ARRAY[e.id]) AND a.claim_id = e.claim_id AND a.result = 'cancelled'))
$$;
