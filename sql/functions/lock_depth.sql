-- The counter of a topic with max_depth, locked. It is made, by counting, when the first message meets the limit.
-- Called by: room, raise_depth. Locks: the row, until the transaction ends: publishers and settlers of a limited topic take turns.
-- p_uncounted: how many of the rows that are there already will be added by the caller. Result: how many messages the topic holds.
-- The transaction gets its number before it waits: a row must not seem older than its transaction, or claims look for it too late.
CREATE OR REPLACE FUNCTION messages.lock_depth(p_topic text, p_uncounted bigint DEFAULT 0)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_rows bigint;
BEGIN
  PERFORM pg_current_xact_id();
  SELECT d.rows INTO v_rows FROM messages.depth AS d WHERE d.topic = p_topic FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    INSERT INTO messages.depth (topic, rows) VALUES (p_topic, greatest(0, messages.count_rows(p_topic) - p_uncounted))
    ON CONFLICT DO NOTHING;
    SELECT d.rows INTO STRICT v_rows FROM messages.depth AS d WHERE d.topic = p_topic FOR NO KEY UPDATE;
  END IF;
  RETURN v_rows;
END
$$;
