-- Settle: the messages succeeded.
-- Called by: workers. p_outputs: what the handlers returned, or NULL.
-- Locks: the rows. Result: the ids whose lock was lost; nothing was changed for them.
CREATE OR REPLACE FUNCTION messages.complete(p_ids bigint[], p_claim_ids bigint[], p_outputs jsonb[] DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  RETURN messages.settle(p_ids, p_claim_ids, 'success', NULL, p_outputs);
END
$$;
