-- Delete waiting messages without a trace, not even in the archive. To keep a trace, use cancel.
-- Called by: operators. Rows locked by a worker or by another transaction are not touched.
-- Locks: the rows. Result: the ids that were deleted.
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
