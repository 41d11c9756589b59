-- The counter of a topic with max_depth, locked. It is made, by counting, when the first message meets the limit.
-- Called by: room, raise_depth, make_depths. Locks: the row, until the transaction ends: publishers of a limited topic take turns. It is waited for
-- as lock_wait says; 55P03 after that, since whoever has published and stays open must not keep others waiting for ever.
-- p_uncounted: how many of the rows that are there already will be added by the caller. Result: how many messages the topic holds.
-- What has changed is added up by a later statement than that which waited: it sees all that was committed by then. Above READ COMMITTED it
-- sees what the transaction sees, that is too many where messages have ended since, and fails (40001) where somebody else has changed the row.
-- The transaction gets its number before it waits: a row must not seem older than its transaction, or claims look for it too late.
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
    RETURN coalesce(messages.fold_depth(p_topic), v_rows);
  END IF;

  -- If it fails, the setting is undone with the statement.
  PERFORM set_config('lock_timeout', messages.lock_wait(), true);
  INSERT INTO messages.depth (topic, rows) VALUES (p_topic, 0) ON CONFLICT DO NOTHING;
  v_is_new := FOUND;
  IF NOT v_is_new THEN
    SELECT d.rows INTO STRICT v_rows FROM messages.depth AS d WHERE d.topic = p_topic FOR NO KEY UPDATE;
  END IF;
  PERFORM set_config('lock_timeout', v_timeout, true);
  IF NOT v_is_new THEN
    RETURN coalesce(messages.fold_depth(p_topic), v_rows);
  END IF;
  -- In one snapshot: what is counted is not to be added again, and what is not seen yet comes with its change.
  WITH counted AS (
    DELETE FROM messages.depth_change AS c WHERE c.topic = p_topic
  )
  UPDATE messages.depth AS d SET rows = greatest(0, messages.count_rows(p_topic) - p_uncounted) WHERE d.topic = p_topic
  RETURNING d.rows INTO v_rows;
  RETURN v_rows;
END
$$;
