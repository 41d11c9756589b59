-- Finish a closed batch if all its messages have ended, and publish what it has for that.
-- Called by: close_batch, apply_batch_changes for batches of which all shards of the statement are at 0. Each of them
-- locks the batch and looks at all shards after that: the later of two sees what the earlier has done.
-- Locks: the batch, until the transaction ends: it waits for those that publish into it.
CREATE OR REPLACE FUNCTION messages.finish_batch(p_batch bigint)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_counts record;
BEGIN
  PERFORM FROM messages.batch AS b WHERE b.id = p_batch AND b.closed_at IS NOT NULL FOR NO KEY UPDATE;
  -- Changes that are committed and not added yet are those that were left to the tick.
  IF NOT FOUND OR (SELECT true FROM messages.batch_shard AS s WHERE s.batch_id = p_batch AND s.live <> 0 LIMIT 1)
    OR (SELECT true FROM messages.batch_change AS c WHERE c.batch_id = p_batch LIMIT 1) THEN
    RETURN;
  END IF;
  SELECT coalesce(sum(s.dead), 0) + coalesce(sum(s.cancelled), 0) AS bad INTO v_counts
  FROM messages.batch_shard AS s WHERE s.batch_id = p_batch;
  UPDATE messages.batch AS b SET finished_at = messages.now() WHERE b.id = p_batch;
  UPDATE messages.batch_callback AS c SET due_at = messages.now()
  WHERE c.batch_id = p_batch AND c.due_at IS NULL
    AND (c.event = 'finish' OR (c.event = 'success' AND v_counts.bad = 0));
  PERFORM messages.publish_batch_callbacks(p_batch);
END
$$;
