-- Returns the shard of a batch in which a message counts. A claim has neighbours, so that its settle needs few shards;
-- and claims at the same time mostly need others.
-- Called by: count_batch_ends, apply_publish_policies, return_to_batches. Locks: nothing. It never changes: a message
-- ends in the shard in which it began.
CREATE OR REPLACE FUNCTION messages.batch_shard_of(p_id bigint)
RETURNS smallint
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
  SELECT ((p_id >> 6) & 63)::smallint
$$;
