-- Closes a batch: from now on it accepts messages only while one of its messages runs, so that handlers can add to it,
-- and is finished when all have ended. An empty batch is finished at once.
--
-- Result: whether it was open.
-- Errors: PGR09 if there is no such batch.
-- Locks: the batch and its counts, until the transaction ends; it waits for transactions that publish into the batch.
-- Commit soon: messages of the batch that end wait up to 200 ms for it.
-- Repeat: safe: a closed batch stays closed.
-- Called by: publishers; cancel_batch.
CREATE OR REPLACE FUNCTION messages.close_batch(p_id bigint)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_batch messages.batch;
BEGIN
  SELECT b.* INTO v_batch FROM messages.batch AS b WHERE b.id = p_id FOR NO KEY UPDATE;
  IF v_batch.id IS NULL THEN
    RAISE EXCEPTION 'there is no batch %', coalesce(p_id::text, 'NULL')
      USING ERRCODE = 'PGR09', HINT = 'it was never created, its creation is not committed, or its retention is over';
  END IF;
  IF v_batch.closed_at IS NOT NULL THEN
    RETURN false;
  END IF;
  UPDATE messages.batch AS b SET closed_at = messages.now() WHERE b.id = p_id;
  -- An end that is being counted holds its shard: this waits for it, and sees it; a later one finds is_closed there.
  PERFORM FROM messages.batch_shard AS s WHERE s.batch_id = p_id ORDER BY s.shard FOR NO KEY UPDATE;
  UPDATE messages.batch_shard AS s SET is_closed = true WHERE s.batch_id = p_id;
  PERFORM messages.finish_batch(p_id);
  RETURN true;
END
$$;
