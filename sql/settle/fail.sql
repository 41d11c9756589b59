-- Settles messages that failed for good: they are archived as `failed`, however many attempts are left.
--
-- Arguments: `p_errors`: as for `messages.reject`.
-- Result: the ids whose lock was lost; nothing was changed for them.
-- Errors: none.
-- Locks: the rows, until the transaction ends; it waits for a transaction that settles, extends or cancels the same
-- rows.
-- Called by: workers.
CREATE OR REPLACE FUNCTION messages.fail(p_ids bigint[], p_claim_ids bigint[], p_errors text[])
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  RETURN messages.lost_ids(
    p_ids, p_claim_ids, messages.archive(p_ids, p_claim_ids, 'failed', p_errors, NULL, NULL), 'failed');
END
$$;
