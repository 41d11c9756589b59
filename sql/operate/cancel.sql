-- Ends messages by hand, whether they are waiting or running: they are archived as `cancelled`, and `handled_by` names
-- the user that cancelled them. For running messages, `cancelled` is notified; their workers lose the lock and stop the
-- handler, and a later settle by the handler changes nothing.
--
-- Result: the ids that were cancelled. Messages that had already ended are not among them.
-- Errors: none.
-- Locks: the rows, in the order of their ids, waiting for any transaction that settles them right now.
-- Repeat: safe.
-- Called by: operators.
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
  FROM (
    SELECT m.id, m.claim_id, m.topic::text FROM messages.message AS m WHERE m.id = ANY (p_ids) ORDER BY m.id FOR UPDATE
  ) AS m;
  IF v_ids IS NULL THEN
    RETURN '{}'::bigint[];
  END IF;
  PERFORM messages.notify('cancelled', array_agg(c.id::text))
  FROM unnest(v_ids, v_claims) AS c (id, claim_id)
  WHERE c.claim_id IS NOT NULL
  HAVING count(*) > 0;
  v_ids := messages.archive(
    v_ids, v_claims, 'cancelled',
    array_fill(coalesce('cancelled: ' || p_reason, 'cancelled'), ARRAY[cardinality(v_ids)]), NULL, messages.actor(),
    true);
  PERFORM messages.audit_messages('cancel', v_topics, v_ids, jsonb_build_object('reason', p_reason));
  RETURN v_ids;
END
$$;
