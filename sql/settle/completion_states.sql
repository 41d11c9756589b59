-- Returns what became of messages that a handler completed in a transaction of its own, of whose end the worker knows
-- nothing: see [`ctx.complete()`](../exactly-once.md).
--
-- Arguments: pairs of ids and claim ids, as for every settle.
-- Result: a row for each pair. `success`: it is committed. `open`: a transaction that is still open may end the
-- message; ask again. `held`: the claim still holds it, because that transaction was rolled back. `lost`: it ended in
-- another way, or has another claim. A message of which nothing is left is a `success` of a topic that keeps none.
-- Errors: none.
-- Locks: the rows that are held, `FOR KEY SHARE`. It waits for none.
-- Repeat: safe.
-- Called by: workers, when such a handler has ended.
CREATE OR REPLACE FUNCTION messages.completion_states(p_ids bigint[], p_claim_ids bigint[])
RETURNS TABLE (id bigint, state text)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  WITH held AS (
    SELECT m.id
    FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id)
    JOIN messages.message AS m ON m.id = ANY (ARRAY[e.id]) AND (m.claim_id = e.claim_id) IS TRUE
    FOR KEY SHARE OF m SKIP LOCKED
  )
  SELECT e.id,
         CASE
           WHEN e.id IN (SELECT h.id FROM held AS h) THEN 'held'
           WHEN (
             SELECT m.id FROM messages.message AS m WHERE m.id = e.id AND (m.claim_id = e.claim_id) IS TRUE
           ) IS NOT NULL THEN 'open'
           WHEN (SELECT m.id FROM messages.message AS m WHERE m.id = e.id) IS NOT NULL THEN 'lost'
           ELSE coalesce(
             (SELECT CASE WHEN a.claim_id = e.claim_id AND a.result = 'success' THEN 'success' ELSE 'lost' END
              FROM messages.message_archive AS a WHERE a.id = e.id),
             'success')
         END
  FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id);
END
$$;
