-- Settles messages that were never started, or that the worker interrupted because it stopped. They keep their place in
-- the queue, and the attempt is not counted; neither is the run, unless `p_ran` says that they had begun. Keys: as for
-- `messages.defer`.
--
-- Result: the ids whose lock was lost; nothing was changed for them.
-- Errors: as `messages.defer`.
-- Locks: the rows, until the transaction ends; it waits for a transaction that settles, extends or cancels the same
-- rows.
-- Called by: workers.
CREATE OR REPLACE FUNCTION messages.release(p_ids bigint[], p_claim_ids bigint[], p_ran boolean[] DEFAULT NULL)
RETURNS bigint[]
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT messages.lost_ids(
    p_ids, p_claim_ids,
    messages.return_attempts(p_ids, p_claim_ids, NULL, NULL, NULL, NULL, p_ran), NULL)
$$;
