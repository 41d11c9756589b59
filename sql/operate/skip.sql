-- Remove waiting messages that hold up others: they are archived as failed, and can be redriven later.
-- Called by: operators, mostly for the first message of an ordered channel that holds up all others. Locked messages are never skipped:
-- they may still succeed; cancel them, or wait.
-- Locks: the rows, waiting for concurrent claims. Result: the ids that were skipped.
CREATE OR REPLACE FUNCTION messages.skip(p_ids bigint[], p_reason text DEFAULT NULL)
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
    SELECT m.id, m.topic::text FROM messages.message AS m WHERE m.id = ANY (p_ids) AND m.claim_id IS NULL ORDER BY m.id FOR UPDATE
  ) AS m;
  IF v_ids IS NULL THEN
    RETURN '{}'::bigint[];
  END IF;
  PERFORM messages.notify_topics(v_topics, messages.now());
  v_ids := messages.archive(
    v_ids, NULL, 'failed',
    array_fill(coalesce('skipped: ' || p_reason, 'skipped'), ARRAY[cardinality(v_ids)]), NULL, messages.actor(), true);
  PERFORM messages.audit_messages('skip', v_topics, v_ids, jsonb_build_object('reason', p_reason));
  RETURN v_ids;
END
$$;
