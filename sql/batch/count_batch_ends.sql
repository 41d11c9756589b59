-- Count the ends of messages of batches.
-- Called by: archive, complete, once per statement and only for messages that have a batch. p_batches: the batch of
-- each; p_result: as in the archive. Locks: the rows it inserts; the trigger apply_batch_changes_at_commit does the
-- rest when the transaction commits.
CREATE OR REPLACE FUNCTION messages.count_batch_ends(p_batches bigint[], p_ids bigint[], p_result text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  INSERT INTO messages.batch_change (batch_id, shard, live, succeeded, dead, cancelled, dead_id)
  SELECT e.batch_id, e.shard, -e.ended,
         CASE p_result WHEN 'success' THEN e.ended ELSE 0 END,
         CASE WHEN p_result IN ('success', 'cancelled') THEN 0 ELSE e.ended END,
         CASE p_result WHEN 'cancelled' THEN e.ended ELSE 0 END,
         CASE WHEN p_result NOT IN ('success', 'cancelled') THEN e.first_id END
  FROM (
    SELECT g.batch_id, messages.batch_shard_of(g.id) AS shard, count(*) AS ended, min(g.id) AS first_id
    FROM unnest(p_batches, p_ids) AS g (batch_id, id)
    GROUP BY 1, 2
  ) AS e;
END
$$;
