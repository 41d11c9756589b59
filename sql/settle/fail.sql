-- Settle: the messages failed for good, however many attempts are left.
-- Called by: workers. Locks: the rows. Result: the ids whose lock was lost; nothing was changed for them.
CREATE OR REPLACE FUNCTION messages.fail(p_ids bigint[], p_claim_ids bigint[], p_errors text[])
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  RETURN messages.settle(p_ids, p_claim_ids, 'failed', p_errors);
END
$$;
