-- The (channel, priority) pairs of one topic whose messages have been due longest: those of its first p_most messages.
-- Called by: pick_with_channel. Locks: nothing. p_low: nothing that is ready has an earlier time.
-- Result: the pairs in their order; is_all: these are all pairs with a due message. It reads the index by time: delayed messages cost
-- nothing, however many channels they are in.
CREATE OR REPLACE FUNCTION messages.oldest_due_channels(
  p_topic text, p_low timestamptz, p_now timestamptz, p_most integer, OUT channels text[], OUT priorities smallint[], OUT is_all boolean
)
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  SELECT array_agg(p.channel ORDER BY p.channel, p.priority), array_agg(p.priority ORDER BY p.channel, p.priority), coalesce(sum(p.due), 0) < p_most
  INTO channels, priorities, is_all
  FROM (
    SELECT f.channel, f.priority, count(*) AS due
    FROM (
      SELECT m.channel, m.priority
      FROM messages.message AS m
      WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL AND m.available_at >= p_low AND m.available_at <= p_now
      ORDER BY m.available_at
      LIMIT p_most) AS f
    GROUP BY f.channel, f.priority) AS p;
END
$$;
