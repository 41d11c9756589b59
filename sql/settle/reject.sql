-- Settle: the messages are invalid and are never tried again.
-- Called by: workers. Locks: the rows. Result: the ids whose lock was lost; nothing was changed for them.
CREATE OR REPLACE FUNCTION messages.reject(p_ids bigint[], p_claim_ids bigint[], p_errors text[])
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  RETURN messages.settle(p_ids, p_claim_ids, 'rejected', p_errors);
END
$$;
