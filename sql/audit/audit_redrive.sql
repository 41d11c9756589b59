-- Record that dead messages were put back, with the count of each outcome. Nothing is recorded if none was put back.
-- Called by: redrive, redrive_where, redrive_edited, requeue_dead_letters. p_ids: which; p_new: as which messages;
-- p_outcomes: as redrive says. Locks: as audit_action.
CREATE OR REPLACE FUNCTION messages.audit_redrive(
  p_action text, p_ids bigint[], p_new bigint[], p_outcomes text[], p_detail jsonb
)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_ids    bigint[];
  v_topics text[];
  v_new    bigint;
BEGIN
  SELECT array_agg(b.id), array_agg(DISTINCT m.topic::text), min(b.new)
  INTO v_ids, v_topics, v_new
  FROM unnest(p_ids, p_new, p_outcomes) AS b (id, new, outcome)
  JOIN messages.message AS m ON m.id = ANY (ARRAY[b.new])
  WHERE b.outcome IN ('redriven', 'keyless');
  PERFORM messages.audit_messages(
    p_action, v_topics, v_ids,
    p_detail
      || CASE WHEN cardinality(v_ids) = 1 THEN jsonb_build_object('message_id', v_new) ELSE '{}' END
      || jsonb_build_object('outcomes', (
        SELECT jsonb_object_agg(o.outcome, o.count) FROM (
          SELECT o.outcome, count(*) AS count FROM unnest(p_outcomes) AS o (outcome) GROUP BY o.outcome) AS o)));
END
$$;
