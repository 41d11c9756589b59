-- The (channel, priority) pairs of one topic that have a due message, in their order.
-- Called by: pick_with_channel. Locks: nothing. p_after: begin behind this channel; p_upto: end with it (NULL = with
-- the last one). p_low: nothing that is ready has an earlier time. p_looks: examine at most about this many pairs, and
-- the rest of the last one's channel. A loose scan in steps: each reads the next entries behind the last pair, at most
-- p_entries for each pair that the step before it found, and so few of a channel with many messages. Channels with few
-- messages cost little more than their entries, which is why a walk that expects to find little reads more at once. It
-- stops as soon as p_limit were found. Plan shape: no plan may read message_due_channel and sort: it would read
-- everything due of the topic for each step.
-- Result: the places that are due; and the last ones, due or not, if p_looks ended the walk. nth: how many were
-- examined.
CREATE OR REPLACE FUNCTION messages.due_channels(
  p_topic text, p_after text, p_upto text, p_now timestamptz, p_limit integer, p_low timestamptz, p_looks integer,
  p_entries integer DEFAULT 2
)
RETURNS TABLE (channel text, priority smallint, is_due boolean, nth integer)
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  RETURN QUERY
  WITH RECURSIVE place AS (
    -- Behind the last priority of p_after.
    SELECT p_after COLLATE "C" AS channel, 9::smallint AS priority, NULL::timestamptz AS available_at,
           0 AS nth, 1 AS found, true AS is_last
    UNION ALL
    SELECT n.channel, n.priority, n.available_at, p.nth + n.found, n.found, n.is_last
    FROM place AS p
    CROSS JOIN LATERAL (
      SELECT f.channel, f.priority, f.available_at,
             (row_number() OVER walk)::integer AS found, lead(true) OVER walk IS NULL AS is_last
      FROM (
        SELECT DISTINCT ON (e.channel, e.priority) e.channel::text, e.priority::smallint, e.available_at::timestamptz
        FROM (
          SELECT m.channel, m.priority, m.available_at
          FROM messages.message AS m
          WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL
            AND (m.channel, m.priority) > (p.channel, p.priority) AND m.available_at >= p_low
          ORDER BY m.channel, m.priority, m.available_at
          LIMIT least(64, p_entries * p.found)) AS e
        ORDER BY e.channel, e.priority, e.available_at) AS f
      WHERE (p_upto IS NULL OR f.channel <= p_upto COLLATE "C") AND (p.nth < p_looks OR f.channel = p.channel)
      WINDOW walk AS (ORDER BY f.channel, f.priority)) AS n
    WHERE p.is_last
  )
  SELECT p.channel, p.priority, p.available_at <= p_now, p.nth
  FROM place AS p
  WHERE p.available_at <= p_now OR p.nth >= p_looks
  LIMIT p_limit;
END
$$;
