-- Lock the counter of a topic with max_depth and return its value. The counter is created, by counting, when the first
-- message meets the limit.
-- Called by: depth_left, add_depth, create_depths. Locks: the row, until the transaction ends: publishers to a limited
-- topic take turns. It waits as lock_wait_limit says, then raises 55P03, since an open publisher must not block others
-- forever. p_uncounted: how many of the rows that are there already will be added by the caller. Result: how many
-- messages the topic holds. Pending changes are added by a later statement than the one that waited, so it sees
-- everything committed by then. Above READ COMMITTED it sees the transaction's snapshot: too many where messages ended
-- since, and it fails (40001) where another session changed the row. The transaction draws its id before it waits: a
-- row must not seem older than its transaction, or claims look for it too late.
CREATE OR REPLACE FUNCTION messages.lock_depth(p_topic text, p_uncounted bigint DEFAULT 0)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_timeout text := current_setting('lock_timeout');
  v_rows    bigint;
  v_is_new  boolean;
BEGIN
  PERFORM pg_current_xact_id();
  SELECT d.rows INTO v_rows FROM messages.depth AS d WHERE d.topic = p_topic FOR NO KEY UPDATE SKIP LOCKED;
  IF FOUND THEN
    RETURN coalesce(messages.apply_depth_changes(p_topic), v_rows);
  END IF;

  -- If it fails, the setting is undone with the statement.
  PERFORM set_config('lock_timeout', messages.lock_wait_limit(), true);
  INSERT INTO messages.depth (topic, rows) VALUES (p_topic, 0) ON CONFLICT DO NOTHING;
  v_is_new := FOUND;
  IF NOT v_is_new THEN
    SELECT d.rows INTO STRICT v_rows FROM messages.depth AS d WHERE d.topic = p_topic FOR NO KEY UPDATE;
  END IF;
  PERFORM set_config('lock_timeout', v_timeout, true);
  IF NOT v_is_new THEN
    RETURN coalesce(messages.apply_depth_changes(p_topic), v_rows);
  END IF;
  -- In one snapshot: what is counted is not to be added again, and what is not seen yet comes with its change.
  WITH counted AS (
    DELETE FROM messages.depth_change AS c WHERE c.topic = p_topic
  )
  UPDATE messages.depth AS d SET rows = greatest(0, messages.count_live(p_topic) - p_uncounted) WHERE d.topic = p_topic
  RETURNING d.rows INTO v_rows;
  RETURN v_rows;
END
$$;
