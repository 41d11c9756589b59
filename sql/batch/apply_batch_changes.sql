-- Add changes to the counts of their batches, and delete them. Then: a batch whose first message died publishes what it
-- has for that, one of whose messages was put back is not finished any more, and one that may be finished is looked at.
-- Called by: the trigger apply_batch_changes_at_commit, apply_missed_batch_changes. p_ids: rows of
-- messages.batch_change that no other session uses.
-- Locks: the shards in their order, then callbacks and batches in theirs, until the transaction ends. A batch is locked
-- first only if it has a new shard, so that it is not closed between: publishers hold that lock already.
CREATE OR REPLACE FUNCTION messages.apply_batch_changes(p_ids bigint[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_changes messages.batch_change[];
  v_new     bigint[];
  v_each    record;
BEGIN
  WITH gone AS (
    DELETE FROM messages.batch_change AS c WHERE c.id = ANY (p_ids) RETURNING c.*
  )
  SELECT array_agg(
    (NULL, NULL, t.batch_id, t.shard, t.live, t.succeeded, t.dead, t.cancelled, t.dead_id)::messages.batch_change
    ORDER BY t.batch_id, t.shard)
  INTO v_changes
  FROM (
    SELECT g.batch_id, g.shard, sum(g.live) AS live, sum(g.succeeded) AS succeeded, sum(g.dead) AS dead,
           sum(g.cancelled) AS cancelled, min(g.dead_id) AS dead_id
    FROM gone AS g GROUP BY g.batch_id, g.shard
  ) AS t;
  v_new := ARRAY(
    SELECT DISTINCT c.batch_id FROM unnest(v_changes) AS c
    WHERE (SELECT true FROM messages.batch_shard AS s WHERE s.batch_id = c.batch_id AND s.shard = c.shard) IS NULL);
  IF v_new <> '{}' THEN
    PERFORM FROM messages.batch AS b WHERE b.id = ANY (v_new) ORDER BY b.id FOR SHARE;
  END IF;

  FOR v_each IN
    WITH added AS (
      INSERT INTO messages.batch_shard AS s (
        batch_id, shard, is_closed, live, succeeded, dead, cancelled, first_ended_at, last_ended_at)
      SELECT c.batch_id, c.shard, b.closed_at IS NOT NULL, c.live, c.succeeded, c.dead, c.cancelled, e.at, e.at
      FROM unnest(v_changes) AS c
      JOIN messages.batch AS b ON b.id = ANY (ARRAY[c.batch_id])
      CROSS JOIN LATERAL (SELECT CASE WHEN c.succeeded > 0 OR c.dead > 0 OR c.cancelled > 0 THEN messages.now() END
      ) AS e (at)
      ORDER BY c.batch_id, c.shard
      ON CONFLICT (batch_id, shard) DO UPDATE
      SET live = s.live + excluded.live, succeeded = s.succeeded + excluded.succeeded, dead = s.dead + excluded.dead,
        cancelled = s.cancelled + excluded.cancelled,
        first_ended_at = coalesce(s.first_ended_at, excluded.first_ended_at),
        last_ended_at = coalesce(excluded.last_ended_at, s.last_ended_at)
      RETURNING s.batch_id, s.is_closed, s.live
    )
    SELECT u.batch_id, bool_and(u.is_closed) AS is_closed, bool_or(u.live <> 0) AS is_live, min(u.dead_id) AS dead_id,
           coalesce(bool_or(u.is_back), false) AS is_back
    FROM (
      SELECT a.batch_id, a.is_closed, a.live, NULL::bigint AS dead_id, NULL::boolean AS is_back FROM added AS a
      UNION ALL
      SELECT c.batch_id, NULL, NULL, c.dead_id, c.dead < 0 FROM unnest(v_changes) AS c
    ) AS u
    GROUP BY u.batch_id
    HAVING bool_and(u.is_closed) OR min(u.dead_id) IS NOT NULL
    ORDER BY u.batch_id
  LOOP
    IF v_each.dead_id IS NOT NULL THEN
      PERFORM messages.note_batch_failure(v_each.batch_id, v_each.dead_id);
    END IF;
    IF v_each.is_closed AND v_each.is_back THEN
      PERFORM messages.reopen_batch(v_each.batch_id);
    END IF;
    IF v_each.is_closed AND NOT v_each.is_live THEN
      PERFORM messages.finish_batch(v_each.batch_id);
    END IF;
  END LOOP;
END
$$;

-- A message of a batch died: publish what the batch has for the first one.
-- Called by: apply_batch_changes. Locks: the row of messages.batch_callback, if it is the first.
CREATE OR REPLACE FUNCTION messages.note_batch_failure(p_batch bigint, p_dead bigint)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  UPDATE messages.batch_callback AS c SET due_at = messages.now(), dead_id = p_dead
  WHERE c.batch_id = p_batch AND c.event = 'failure' AND c.due_at IS NULL;
  IF FOUND THEN
    PERFORM messages.publish_batch_callbacks(p_batch);
  END IF;
END
$$;

-- A message of a closed batch was put back: the batch is not finished any more. It is locked first: one that finishes
-- it at this moment is waited for, or sees the message.
-- Called by: apply_batch_changes. Locks: the batch.
CREATE OR REPLACE FUNCTION messages.reopen_batch(p_batch bigint)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM FROM messages.batch AS b WHERE b.id = p_batch FOR NO KEY UPDATE;
  UPDATE messages.batch AS b SET finished_at = NULL WHERE b.id = p_batch AND b.finished_at IS NOT NULL;
END
$$;
