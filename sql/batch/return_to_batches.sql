-- Count dead messages of batches that were put back: each is live again, as another message, and no longer dead. A
-- batch that was finished is not any more.
-- Called by: redrive_rows, while there may be batches. p_ids: the new messages. Locks: the rows it inserts.
CREATE OR REPLACE FUNCTION messages.return_to_batches(p_ids bigint[])
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  INSERT INTO messages.batch_change (batch_id, shard, live, dead)
  SELECT e.batch_id, e.shard, sum(e.live), sum(e.dead)
  FROM messages.message AS m
  CROSS JOIN LATERAL (VALUES
    (m.batch_id, messages.batch_shard_of(m.id), 1, 0), (m.batch_id, messages.batch_shard_of(m.redriven_from), 0, -1)
  ) AS e (batch_id, shard, live, dead)
  WHERE m.id = ANY (p_ids) AND m.batch_id IS NOT NULL
  GROUP BY e.batch_id, e.shard;
END
$$;
