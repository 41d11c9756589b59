-- Add up what has changed about the counter of a topic with max_depth since somebody last did.
-- Called by: lock_depth, recount_depth, which hold the counter's row since an earlier statement. So no two are at it at once, each sees what
-- the one before left, and what it deletes nobody else has in hand. Locks: nothing that anybody waits for.
-- Never below 0: a limit that was set while older transactions ran counts from what it saw, until recount_depth has put it right.
-- Result: how many messages the topic holds; NULL = as its counter says, nothing has changed.
CREATE OR REPLACE FUNCTION messages.fold_depth(p_topic text)
RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
  v_rows bigint;
BEGIN
  IF NOT EXISTS (SELECT FROM messages.depth_change AS c WHERE c.topic = p_topic) THEN
    RETURN NULL;
  END IF;
  WITH gone AS (
    DELETE FROM messages.depth_change AS c WHERE c.topic = p_topic RETURNING c.change
  )
  UPDATE messages.depth AS d
  SET rows = greatest(0, d.rows + g.change)
  FROM (SELECT sum(gone.change)::bigint AS change FROM gone) AS g
  WHERE d.topic = p_topic
  RETURNING d.rows INTO v_rows;
  RETURN v_rows;
END
$$;
