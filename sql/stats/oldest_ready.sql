-- Since when the oldest ready message of a topic waits, read from the edges of the ready indexes.
-- Called by: conditions and stats, topic by topic. Locks: nothing. Result: NULL = none is ready.
CREATE OR REPLACE FUNCTION messages.oldest_ready(p_topic text)
RETURNS timestamptz
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_next   record;
  v_oldest timestamptz;
BEGIN
  SELECT m.available_at INTO v_oldest
  FROM messages.message AS m
  WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL
  ORDER BY m.available_at LIMIT 1;
  SELECT n.* INTO v_next FROM messages.next_priority(p_topic, (-1)::smallint, true) AS n;
  WHILE v_next.priority IS NOT NULL LOOP
    v_oldest := least(v_oldest, (
      SELECT m.available_at FROM messages.message AS m
      WHERE m.topic = p_topic AND m.priority = v_next.priority AND m.claim_id IS NULL AND m.channel IS NULL
        AND m.available_at >= v_next.low
      ORDER BY m.available_at LIMIT 1));
    SELECT n.* INTO v_next FROM messages.next_priority(p_topic, v_next.priority, true) AS n;
  END LOOP;
  RETURN CASE WHEN v_oldest <= v_now THEN v_oldest END;
END
$$;
