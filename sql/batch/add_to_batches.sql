-- Count what a statement inserted into batches.
-- Called by: the trigger apply_publish_policies, once per statement. p_batches, p_shards, p_counts: how many new
-- messages of which batch and shard; redriven ones are counted by return_to_batches. Errors: as check_batches.
-- Locks: as check_batches, and the rows it inserts.
CREATE OR REPLACE FUNCTION messages.add_to_batches(p_batches bigint[], p_shards smallint[], p_counts bigint[])
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM messages.check_batches(p_batches);
  INSERT INTO messages.batch_change (batch_id, shard, live)
  SELECT a.batch_id, a.shard, a.count FROM unnest(p_batches, p_shards, p_counts) AS a (batch_id, shard, count);
END
$$;
