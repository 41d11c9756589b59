-- Cancels the messages of a batch that have not ended, waiting or running, as `messages.cancel` does: `p_limit`
-- messages a call (10,000 at most), so call it until it returns 0. The first call closes the batch, and nothing comes
-- into it from then on, not even from handlers that still run. It is finished when the last message has ended.
--
-- Result: how many messages were cancelled.
-- Errors: PGR09 if there is no such batch; 22023 for an invalid limit.
-- Locks: as `messages.close_batch`, then as `messages.cancel`.
-- Repeat: safe. The call is recorded in `messages.audit`.
-- Called by: operators.
CREATE OR REPLACE FUNCTION messages.cancel_batch(
  p_id bigint, p_reason text DEFAULT NULL, p_limit integer DEFAULT 1000
)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids bigint[];
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'limit of a cancellation is %', coalesce(p_limit::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 10000';
  END IF;
  IF EXISTS (SELECT FROM messages.batch AS b WHERE b.id = p_id AND b.finished_at IS NOT NULL) THEN
    RETURN 0;
  END IF;
  -- This comes before it is closed, which may finish it: a finished batch was not cancelled.
  v_ids := ARRAY(SELECT m.id FROM messages.message AS m WHERE m.batch_id = p_id LIMIT p_limit);
  PERFORM messages.close_batch(p_id);
  UPDATE messages.batch AS b SET cancelled_at = messages.now()
  WHERE b.id = p_id AND b.cancelled_at IS NULL AND b.finished_at IS NULL;
  IF FOUND THEN
    -- Those that were published since, by transactions for which the UPDATE has waited.
    v_ids := ARRAY(SELECT m.id FROM messages.message AS m WHERE m.batch_id = p_id LIMIT p_limit);
    PERFORM messages.audit_action('cancel_batch', NULL, p_id::text, jsonb_build_object('reason', p_reason));
  END IF;
  RETURN cardinality(messages.cancel(v_ids, p_reason));
END
$$;
