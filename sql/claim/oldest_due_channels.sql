-- The places of one topic's channels whose messages have been due longest: those of the first p_most messages.
-- Called by: pick_channels. Locks: nothing. p_low: nothing that is ready has an earlier time.
-- Result: the places in their order; is_all: these are all places that have a message which is due. It reads the index by time: what is delayed
-- costs nothing, in however many channels it stands.
CREATE OR REPLACE FUNCTION messages.due_first(
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
