-- What became of messages whose handlers completed them in a transaction of their own, of whose end their worker knows nothing.
-- Called by: workers, when such a handler has ended. p_ids, p_claim_ids: pairs, as every settle has them.
-- Locks: the rows that are held, FOR KEY SHARE; it waits for none.
-- Result: a row for each pair: success (committed), open (a transaction that is still open may end it), held (it is locked by its claim as
-- before: the transaction was rolled back), lost (it ended in another way, or has another claim).
-- A message of which nothing is left was a success of a topic that keeps none.
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
    JOIN messages.message AS m ON m.id = e.id AND m.claim_id = e.claim_id
    FOR KEY SHARE OF m SKIP LOCKED
  )
  SELECT e.id,
         CASE
           WHEN (SELECT h.id FROM held AS h WHERE h.id = e.id) IS NOT NULL THEN 'held'
           WHEN (SELECT m.id FROM messages.message AS m WHERE m.id = e.id AND m.claim_id = e.claim_id) IS NOT NULL THEN 'open'
           WHEN (SELECT m.id FROM messages.message AS m WHERE m.id = e.id) IS NOT NULL THEN 'lost'
           ELSE coalesce(
             (SELECT CASE WHEN a.claim_id = e.claim_id AND a.result = 'success' THEN 'success' ELSE 'lost' END
              FROM messages.message_archive AS a WHERE a.id = e.id),
             'success')
         END
  FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id);
END
$$;
