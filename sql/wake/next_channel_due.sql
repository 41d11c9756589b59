-- When the next message in the channels of one topic is due.
-- Called by: next_due, renotify_stale. Locks: nothing. p_held: a claim held back what is already due; look beyond it.
-- The next one by time is the first entry of an index. Looking beyond what is held back is a loose scan over at most 1000 places; where
-- there are more, the result is at most a second away. Result: NULL = nothing waits.
CREATE OR REPLACE FUNCTION messages.next_channel_due(p_topic text, p_now timestamptz, p_held boolean)
RETURNS timestamptz
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_low    timestamptz := messages.channel_low_water(p_topic);
  v_due    timestamptz;
  v_places integer;
BEGIN
  IF NOT p_held THEN
    RETURN (
      SELECT m.available_at FROM messages.message AS m
      WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL AND m.available_at >= v_low
      ORDER BY m.available_at LIMIT 1);
  END IF;
  WITH RECURSIVE place AS (
    (SELECT m.channel, m.priority, m.available_at, 1 AS nth
     FROM messages.message AS m
     WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL AND m.available_at >= v_low
     ORDER BY m.channel, m.priority, m.available_at
     LIMIT 1)
    UNION ALL
    SELECT n.channel, n.priority, n.available_at, p.nth + 1
    FROM place AS p
    CROSS JOIN LATERAL (
      SELECT m.channel, m.priority, m.available_at
      FROM messages.message AS m
      WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL AND (m.channel, m.priority) > (p.channel, p.priority)
        AND m.available_at >= v_low
      ORDER BY m.channel, m.priority, m.available_at
      LIMIT 1) AS n
    WHERE p.nth < 1000
  )
  SELECT min(p.available_at) FILTER (WHERE p.available_at > p_now), max(p.nth)
  INTO v_due, v_places
  FROM place AS p;
  RETURN CASE WHEN v_places >= 1000 THEN least(v_due, p_now + interval '1 s') ELSE v_due END;
END
$$;
