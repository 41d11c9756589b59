-- End messages with one result, and say which of them the caller had lost.
-- Called by: complete, reject, fail and retry. Not granted to any role. p_result, p_errors, p_outputs: as archive takes
-- them.
-- Locks: the rows. Result: the ids whose lock was lost; nothing was changed for them.
-- (It and its callers are in plpgsql, since a function in SQL is planned again by each call.)
CREATE OR REPLACE FUNCTION messages.settle(
  p_ids bigint[], p_claim_ids bigint[], p_result text, p_errors text[] DEFAULT NULL, p_outputs jsonb[] DEFAULT NULL
)
RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
  v_settled bigint[] := messages.archive(p_ids, p_claim_ids, p_result, p_errors, p_outputs, NULL);
BEGIN
  IF cardinality(v_settled) >= cardinality(p_ids) THEN
    RETURN '{}'::bigint[];
  END IF;
  RETURN messages.lost_ids(p_ids, p_claim_ids, v_settled, p_result);
END
$$;
