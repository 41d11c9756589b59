-- Record what was done to some messages, as one row with the first hundred ids. Nothing is recorded for none.
-- Called by: cancel, skip, retry_now, signal, audit_redrive. p_topics: their topics; duplicates are fine. Locks: as
-- audit_action.
CREATE OR REPLACE FUNCTION messages.audit_messages(
  p_action text, p_topics text[], p_ids bigint[], p_detail jsonb DEFAULT '{}'
)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_topics text[] := ARRAY(SELECT DISTINCT t.topic FROM unnest(p_topics) AS t (topic) ORDER BY t.topic LIMIT 20);
  v_count  bigint := coalesce(cardinality(p_ids), 0);
BEGIN
  IF v_count = 0 THEN
    RETURN;
  END IF;
  PERFORM messages.audit_action(
    p_action,
    CASE WHEN cardinality(v_topics) = 1 THEN v_topics[1] END,
    CASE WHEN v_count = 1 THEN p_ids[1]::text END,
    jsonb_build_object('count', v_count)
      || CASE WHEN v_count > 1 THEN jsonb_build_object('ids', p_ids[1:100]) ELSE '{}' END
      || CASE WHEN cardinality(v_topics) > 1 THEN jsonb_build_object('topics', v_topics) ELSE '{}' END
      || p_detail);
END
$$;
