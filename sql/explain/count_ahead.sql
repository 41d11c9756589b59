-- Count the ready messages of the same topic and channel that are claimed before this one, up to p_bound.
-- Called by: explain_queue_position. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.count_ahead(p_message messages.message, p_now timestamptz, p_bound integer)
RETURNS bigint
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_ahead bigint := 0;
  v_more  bigint;
  v_place record;
BEGIN
  -- Priority by priority: in the index only then do the ready stand before the delayed. Of messages without a channel
  -- nothing is below low.
  FOR v_place IN
    SELECT p.priority::smallint AS priority,
           coalesce(
             (SELECT w.at FROM messages.low_water AS w WHERE w.topic = p_message.topic AND w.priority = p.priority),
             '-infinity'
           ) AS low
    FROM generate_series(0, p_message.priority) AS p (priority)
  LOOP
    IF p_message.channel IS NULL THEN
      SELECT count(*) INTO v_more FROM (
        SELECT FROM messages.message AS m
        WHERE m.topic = p_message.topic AND m.priority = v_place.priority AND m.claim_id IS NULL AND m.channel IS NULL
          AND m.available_at >= v_place.low AND m.available_at <= p_now
          AND (m.priority < p_message.priority OR (m.available_at, m.id) < (p_message.available_at, p_message.id))
        ORDER BY m.available_at, m.id
        LIMIT p_bound - v_ahead) AS ahead;
    ELSE
      SELECT count(*) INTO v_more FROM (
        SELECT FROM messages.message AS m
        WHERE m.topic = p_message.topic AND m.channel = p_message.channel AND m.priority = v_place.priority
          AND m.claim_id IS NULL AND m.channel IS NOT NULL AND m.available_at <= p_now
          AND (m.priority < p_message.priority OR (m.available_at, m.id) < (p_message.available_at, p_message.id))
        ORDER BY m.available_at, m.id
        LIMIT p_bound - v_ahead) AS ahead;
    END IF;
    v_ahead := v_ahead + v_more;
    EXIT WHEN v_ahead >= p_bound;
  END LOOP;
  RETURN v_ahead;
END
$$;
