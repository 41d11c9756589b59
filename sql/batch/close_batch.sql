-- Closes a batch: from now on it accepts messages only while one of its messages runs, so that handlers can add to it,
-- and is finished when all have ended. An empty batch is finished at once.
--
-- Result: whether it was open.
-- Errors: PGR09 if there is no such batch.
-- Locks: the batch and its counts, until the transaction ends; it waits for transactions that publish into the batch.
-- Commit soon: messages of the batch that end wait up to 200 ms for it. Above READ COMMITTED it locks the batch alone,
-- and the tick finishes it.
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
  IF current_setting('transaction_isolation') = 'read committed' THEN
    PERFORM messages.close_batch_shards(p_id);
    PERFORM messages.finish_batch(p_id);
  ELSE
    -- Its snapshot may be older than what was published: the tick does the rest.
    INSERT INTO messages.batch_change (batch_id, shard) VALUES (p_id, 0);
  END IF;
  RETURN true;
END
$$;
