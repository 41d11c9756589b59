-- The (channel, priority) pairs of one topic that have a due message, in their order.
-- Called by: pick_with_channel. Locks: nothing. p_after: begin behind this channel; p_upto: end with it (NULL = with the last one).
-- p_low: nothing that is ready has an earlier time. p_looks: examine at most this many pairs, and the rest of the last one's channel. A
-- loose scan: it reads one entry of each pair, however many messages it has, and stops as soon as p_limit were found.
-- Plan shape: no plan may read message_due_channel and sort: it would read everything due of the topic for each pair.
-- Result: the places that are due; and the last ones, due or not, if p_looks ended the walk. nth: how many were examined.
CREATE OR REPLACE FUNCTION messages.due_channels(
  p_topic text, p_after text, p_upto text, p_now timestamptz, p_limit integer, p_low timestamptz, p_looks integer
)
RETURNS TABLE (channel text, priority smallint, is_due boolean, nth integer)
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  RETURN QUERY
  WITH RECURSIVE place AS (
    (SELECT m.channel, m.priority, m.available_at, 1 AS nth
     FROM messages.message AS m
     WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL AND m.channel > p_after COLLATE "C" AND m.available_at >= p_low
     ORDER BY m.channel, m.priority, m.available_at
     LIMIT 1)
    UNION ALL
    SELECT n.channel, n.priority, n.available_at, p.nth + 1
    FROM place AS p
    CROSS JOIN LATERAL (
      SELECT m.channel, m.priority, m.available_at
      FROM messages.message AS m
      WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL AND (m.channel, m.priority) > (p.channel, p.priority)
        AND m.available_at >= p_low
      ORDER BY m.channel, m.priority, m.available_at
      LIMIT 1) AS n
    WHERE (p_upto IS NULL OR p.channel <= p_upto COLLATE "C") AND (p.nth < p_looks OR n.channel = p.channel)
  )
  SELECT p.channel::text, p.priority::smallint, p.available_at <= p_now, p.nth
  FROM place AS p
  WHERE (p.available_at <= p_now OR p.nth >= p_looks) AND (p_upto IS NULL OR p.channel <= p_upto COLLATE "C")
  LIMIT p_limit;
END
$$;
