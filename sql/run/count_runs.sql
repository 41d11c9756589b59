-- Counts the run of messages that waited in their worker (`p_start` of the claim) and begin now. It skips a message
-- whose lock was lost, or whose run is already counted.
--
-- Errors: none.
-- Locks: the rows, in the order of their ids, until the transaction ends.
-- Repeat: safe.
-- Called by: workers with a prefetch, in the round trip that follows the start, before they settle the same message: a
-- crash within it leaves a run uncounted, but never counts one for a message that only waited.
CREATE OR REPLACE FUNCTION messages.count_runs(p_ids bigint[], p_claim_ids bigint[])
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  UPDATE messages.message AS m
  SET runs = m.runs + 1, prefetched = NULL
  FROM (
    SELECT m.id
    FROM (SELECT e.* FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id) ORDER BY e.id) AS e
    JOIN messages.message AS m ON m.id = ANY (ARRAY[e.id]) AND (m.claim_id = e.claim_id) IS TRUE
    WHERE m.prefetched
    FOR NO KEY UPDATE OF m
  ) AS s
  WHERE m.id = ANY (ARRAY[s.id]);
END
$$;
