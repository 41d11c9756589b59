-- Deletes waiting messages without a trace: nothing is kept, not even in the archive. To keep a record, cancel them
-- instead (`messages.cancel`). Callers that wait for one of them, and messages that come after it, are notified that it
-- was cancelled.
--
-- Result: the ids that were deleted.
-- Errors: none.
-- Locks: the rows. Messages that a worker or another transaction has locked are not touched.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.delete(p_ids bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids    bigint[];
  v_topics text[];
BEGIN
  SELECT array_agg(m.id), array_agg(DISTINCT m.topic)
  INTO v_ids, v_topics
  FROM (
    SELECT m.id, m.topic::text FROM messages.message AS m
    WHERE m.id = ANY (p_ids) AND m.claim_id IS NULL
    ORDER BY m.id
    FOR UPDATE SKIP LOCKED) AS m;
  IF v_ids IS NULL THEN
    RETURN '{}'::bigint[];
  END IF;
  v_ids := messages.erase(v_ids);
  PERFORM messages.audit_messages('delete', v_topics, v_ids);
  RETURN v_ids;
END
$$;
