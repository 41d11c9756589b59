-- Add the pending changes of a max_depth counter to the counter.
-- Called by: lock_depth, recount_depth, which hold the counter's row since an earlier statement. So only one session
-- does this at a time, each sees what the previous one left, and no other session uses what it deletes. Locks: nothing
-- that others wait for. Never below 0: a limit that was set while older transactions ran counts from what it saw, until
-- recount_depth has put it right.
-- Result: how many messages the topic has; NULL = the counter is right, nothing has changed.
CREATE OR REPLACE FUNCTION messages.apply_depth_changes(p_topic text)
RETURNS bigint
LANGUAGE plpgsql
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
