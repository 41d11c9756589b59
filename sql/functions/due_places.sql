-- The places of one topic's channels that have a message which is due: (channel, priority) in their order.
-- Called by: pick_channels. Locks: nothing. p_after: begin behind this channel; p_upto: end with it (NULL = with the last one).
-- A loose scan: it reads one entry of each place, however many messages stand there, and stops as soon as p_limit were found.
CREATE OR REPLACE FUNCTION messages.due_places(p_topic text, p_after text, p_upto text, p_now timestamptz, p_limit integer)
RETURNS TABLE (channel text, priority smallint)
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  RETURN QUERY
  WITH RECURSIVE place AS (
    (SELECT m.channel, m.priority, m.available_at
     FROM messages.message AS m
     WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL AND m.channel > p_after COLLATE "C"
     ORDER BY m.channel, m.priority, m.available_at
     LIMIT 1)
    UNION ALL
    SELECT n.channel, n.priority, n.available_at
    FROM place AS p
    CROSS JOIN LATERAL (
      SELECT m.channel, m.priority, m.available_at
      FROM messages.message AS m
      WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL AND (m.channel, m.priority) > (p.channel, p.priority)
      ORDER BY m.channel, m.priority, m.available_at
      LIMIT 1) AS n
    WHERE p_upto IS NULL OR p.channel <= p_upto COLLATE "C"
  )
  SELECT p.channel::text, p.priority::smallint
  FROM place AS p
  WHERE p.available_at <= p_now AND (p_upto IS NULL OR p.channel <= p_upto COLLATE "C")
  LIMIT p_limit;
END
$$;
