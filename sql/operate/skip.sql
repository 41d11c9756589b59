-- Removes waiting messages so that those behind them can proceed, above all the first message of an ordered channel.
-- They are archived as `failed` with the error `skipped: <reason>`, and can be redriven later.
--
-- Result: the ids that were skipped. A locked message is not touched: it may still succeed.
-- Errors: none.
-- Locks: the rows, waiting for any transaction that claims them right now.
-- Called by: operators.
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
    SELECT m.id, m.topic::text FROM messages.message AS m
    WHERE m.id = ANY (p_ids) AND m.claim_id IS NULL ORDER BY m.id FOR UPDATE
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
