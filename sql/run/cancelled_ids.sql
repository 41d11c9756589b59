-- Which messages with a lost lock were cancelled by an operator.
-- Called by: workers, after a heartbeat reported the loss: handlers may want to know why.
-- Locks: nothing. Result: the ids that the archive holds as cancelled under the very same claim.
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
      SELECT FROM messages.message_archive AS a WHERE a.id = e.id AND a.claim_id = e.claim_id AND a.result = 'cancelled'))
$$;
