-- How messages ended under these claims, whatever the caller asked for: retry ends a message without attempts left, and a message whose key
-- a newer message has ends as cancelled.
-- Called by: workers that settle many at once, after retry, defer and release. p_ids, p_claim_ids: pairs, as every settle has them.
-- Locks: nothing. Result: a row for each that the archive has under its claim. The others wait again, or their locks were lost.
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
  JOIN messages.message_archive AS a ON a.id = e.id AND a.claim_id = e.claim_id;
END
$$;
