-- End messages with one result, and say which of them the caller had lost.
-- Called by: complete, reject, fail and retry. Not granted to any role. p_result, p_errors, p_outputs: as archive takes them.
-- Locks: the rows. Result: the ids whose lock was lost; nothing was changed for them.
CREATE OR REPLACE FUNCTION messages.settle(
  p_ids bigint[], p_claim_ids bigint[], p_result text, p_errors text[] DEFAULT NULL, p_outputs jsonb[] DEFAULT NULL
)
RETURNS bigint[]
LANGUAGE sql
AS $$
  SELECT messages.lost_ids(p_ids, p_claim_ids, messages.archive(p_ids, p_claim_ids, p_result, p_errors, p_outputs, NULL), p_result)
$$;
