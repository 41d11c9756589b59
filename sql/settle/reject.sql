-- Settles messages that are invalid: they are archived as `rejected` and are never tried again, however many attempts
-- are left.
--
-- Arguments: `p_errors`: the reasons. Errors of up to 8,192 bytes are kept; of a longer error, its first 2,048
-- characters.
-- Result: the ids whose lock was lost; nothing was changed for them.
-- Errors: none.
-- Locks: the rows, until the transaction ends; it waits for a transaction that settles, extends or cancels the same
-- rows.
-- Called by: workers.
CREATE OR REPLACE FUNCTION messages.reject(p_ids bigint[], p_claim_ids bigint[], p_errors text[])
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  RETURN messages.lost_ids(
    p_ids, p_claim_ids, messages.archive(p_ids, p_claim_ids, 'rejected', p_errors, NULL, NULL), 'rejected');
END
$$;
