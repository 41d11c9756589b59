-- End messages by hand: they are archived as cancelled, whether they are waiting or running.
-- Called by: operators. A running handler loses its lock: its worker is notified at once (NOTIFY cancelled) and cancels the handler; a
-- later settle changes nothing.
-- Locks: the rows, waiting for sessions that settle them. Result: the ids that were cancelled.
CREATE OR REPLACE FUNCTION messages.cancel(p_ids bigint[], p_reason text DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids    bigint[];
  v_claims bigint[];
  v_topics text[];
BEGIN
  SELECT array_agg(m.id), array_agg(m.claim_id), array_agg(DISTINCT m.topic)
  INTO v_ids, v_claims, v_topics
  FROM (SELECT m.id, m.claim_id, m.topic::text FROM messages.message AS m WHERE m.id = ANY (p_ids) ORDER BY m.id FOR UPDATE) AS m;
  IF v_ids IS NULL THEN
    RETURN '{}'::bigint[];
  END IF;
  PERFORM messages.notify('cancelled', array_agg(c.id::text))
  FROM unnest(v_ids, v_claims) AS c (id, claim_id)
  WHERE c.claim_id IS NOT NULL
  HAVING count(*) > 0;
  v_ids := messages.archive(
    v_ids, v_claims, 'cancelled',
    array_fill(coalesce('cancelled: ' || p_reason, 'cancelled'), ARRAY[cardinality(v_ids)]), NULL, messages.actor(), true);
  PERFORM messages.audit_messages('cancel', v_topics, v_ids, jsonb_build_object('reason', p_reason));
  RETURN v_ids;
END
$$;
