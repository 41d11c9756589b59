-- Tells to which batch a message belongs, and how far that is.
-- Called by: explain, for a message with a batch. Locks: nothing. Result: as explain.
CREATE OR REPLACE FUNCTION messages.explain_batch(p_batch bigint)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_batch record;
BEGIN
  SELECT b.* INTO v_batch FROM messages.batch_state AS b WHERE b.id = p_batch;
  code := 'batch';
  reason := CASE
    WHEN v_batch.id IS NULL THEN format('it belongs to batch %s, whose retention is over', p_batch)
    ELSE format(
      'it belongs to batch %s%s, which is %s: %s of %s messages have ended', p_batch, ' "' || v_batch.name || '"',
      v_batch.state, v_batch.total - v_batch.live, v_batch.total)
  END;
  detail := jsonb_strip_nulls(jsonb_build_object(
    'batch', p_batch, 'name', v_batch.name, 'state', v_batch.state, 'total', v_batch.total, 'live', v_batch.live));
  RETURN NEXT;
END
$$;
