-- Refuse messages for batches that accept none.
-- Called by: publish, the trigger apply_publish_policies. p_batches: batches of new messages. Errors: PGR09.
-- Locks: the batches, in SHARE mode until the transaction ends: a batch is closed before or after it, and finished
-- after it, so no message comes into a finished batch.
CREATE OR REPLACE FUNCTION messages.check_batches(p_batches bigint[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_each  messages.batch;
  v_found bigint[] := '{}'::bigint[];
BEGIN
  FOR v_each IN
    SELECT b.* FROM messages.batch AS b
    WHERE b.id = ANY (p_batches) ORDER BY b.id FOR SHARE
  LOOP
    v_found := array_append(v_found, v_each.id);
    IF v_each.cancelled_at IS NOT NULL OR v_each.finished_at IS NOT NULL THEN
      RAISE EXCEPTION 'batch % % at %: it accepts no messages', v_each.id,
        CASE WHEN v_each.cancelled_at IS NULL THEN 'was finished' ELSE 'was cancelled' END,
        coalesce(v_each.cancelled_at, v_each.finished_at)
        USING ERRCODE = 'PGR09', HINT = 'create another batch';
    END IF;
    IF v_each.closed_at IS NOT NULL AND (
      SELECT true FROM messages.message AS m WHERE m.batch_id = v_each.id AND m.claim_id IS NOT NULL LIMIT 1) IS NULL
    THEN
      RAISE EXCEPTION 'batch % was closed at %, and none of its messages runs', v_each.id, v_each.closed_at
        USING ERRCODE = 'PGR09', HINT = 'close a batch after the last publish; only handlers of its messages add later';
    END IF;
  END LOOP;
  IF NOT p_batches <@ v_found THEN
    RAISE EXCEPTION 'there is no batch %', (
        SELECT min(p.id) FROM unnest(p_batches) AS p (id)
        WHERE p.id NOT IN (SELECT f.id FROM unnest(v_found) AS f (id)))
      USING ERRCODE = 'PGR09', HINT = 'it was never created, its creation is not committed, or its retention is over';
  END IF;
END
$$;
