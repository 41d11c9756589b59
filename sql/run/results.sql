-- Returns how messages ended under these claims, which may differ from what was requested: `retry` ends a message that
-- has no attempt left as `failed`, and `retry`, `defer` and `release` end one as `cancelled` if a newer message of its
-- key is ready.
--
-- Arguments: pairs of ids and claim ids, as for every settle.
-- Result: a row for each message that the archive contains under its claim. The others are waiting again, or their lock
-- was lost.
-- Errors: none.
-- Locks: none.
-- Repeat: it only reads.
-- Called by: workers that settle many at once, after retry, defer and release.
CREATE OR REPLACE FUNCTION messages.results(p_ids bigint[], p_claim_ids bigint[])
RETURNS TABLE (id bigint, result text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  SELECT a.id, a.result
  FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id)
  JOIN messages.message_archive AS a ON a.id = ANY (ARRAY[e.id]) AND a.claim_id = e.claim_id;
END
$$;
