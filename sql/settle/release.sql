-- Settle: give messages back that never started, or that a drain stopped. They keep their position and get their attempt back.
-- Called by: workers. p_ran: which of them had begun (NULL = none): these keep their run, the others get it back, too. Locks: the rows.
-- Result: the ids whose lock was lost; nothing was changed for them.
CREATE OR REPLACE FUNCTION messages.release(p_ids bigint[], p_claim_ids bigint[], p_ran boolean[] DEFAULT NULL)
RETURNS bigint[]
LANGUAGE sql
SECURITY DEFINER
AS $$
  SELECT messages.lost_ids(p_ids, p_claim_ids, messages.return_attempts(p_ids, p_claim_ids, NULL, NULL, NULL, NULL, p_ran), NULL)
$$;
