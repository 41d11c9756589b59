-- Stores the progress of running messages for others to see: in `messages.message.progress` and, in its last state, in
-- the archive.
--
-- Arguments: `p_progress`: `{"done": 30, "total": 100, "unit": "rows"}`, or any other JSON value. It replaces the
-- previous value. `p_wait` false: rows that others hold at this moment are skipped.
-- Result: the ids whose lock was lost; nothing was changed for them.
-- Errors: none.
-- Locks: the rows, in the order of their ids, until the transaction ends. If you settle other messages in the same
-- transaction, it may deadlock with a cancellation of several messages: use a separate transaction.
-- Repeat: safe.
-- Called by: workers, for handlers that report progress: at most about once a second for a message, and before its
-- settle.
-- Inside: It does not wait for a flush of its own.
CREATE OR REPLACE FUNCTION messages.set_progress(
  p_ids bigint[], p_claim_ids bigint[], p_progress jsonb[], p_wait boolean DEFAULT true
)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids bigint[];
BEGIN
  IF p_wait THEN
    v_ids := ARRAY(
      SELECT m.id
      FROM (SELECT e.* FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id) ORDER BY e.id) AS e
      JOIN messages.message AS m ON m.id = ANY (ARRAY[e.id]) AND (m.claim_id = e.claim_id) IS TRUE
      FOR NO KEY UPDATE OF m);
  ELSE
    v_ids := ARRAY(
      SELECT m.id
      FROM (SELECT e.* FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id) ORDER BY e.id) AS e
      JOIN messages.message AS m ON m.id = ANY (ARRAY[e.id]) AND (m.claim_id = e.claim_id) IS TRUE
      FOR NO KEY UPDATE OF m SKIP LOCKED);
  END IF;

  UPDATE messages.message AS m
  SET progress = e.progress::messages.given_json
  FROM unnest(p_ids, p_claim_ids, p_progress) AS e (id, claim_id, progress)
  WHERE m.id = ANY (ARRAY[e.id]) AND (m.claim_id = e.claim_id) IS TRUE
    AND (e.id IN (SELECT i.id FROM unnest(v_ids) AS i (id))) IS TRUE;

  RETURN ARRAY(
    SELECT e.id
    FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id)
    WHERE NOT EXISTS (
      SELECT FROM messages.message AS m WHERE m.id = ANY (ARRAY[e.id]) AND (m.claim_id = e.claim_id) IS TRUE)
  );
END
$$;
