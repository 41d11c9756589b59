-- Tell the counts of a batch that it is closed. An end that is being counted holds its shard: this waits for it, and
-- sees it; a later one finds is_closed there.
-- Called by: close_batch, apply_missed_batch_changes for a batch that was closed above READ COMMITTED.
-- Locks: the shards in their order, until the transaction ends.
CREATE OR REPLACE FUNCTION messages.close_batch_shards(p_batch bigint)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM FROM messages.batch_shard AS s WHERE s.batch_id = p_batch ORDER BY s.shard FOR NO KEY UPDATE;
  UPDATE messages.batch_shard AS s SET is_closed = true WHERE s.batch_id = p_batch AND NOT s.is_closed;
END
$$;
