-- The walk over one topic's channels: the first (channel, priority) after the given one that has a message which is due.
-- Called by: messages.claim_channels. Locks: nothing. Result: channel NULL at the end.
CREATE OR REPLACE FUNCTION messages.next_channel(
  p_topic text, p_channel text, p_priority smallint, p_now timestamptz, OUT channel text, OUT priority smallint
)
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  SELECT m.channel, m.priority INTO channel, priority
  FROM messages.message AS m
  WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL
    AND (m.channel, m.priority) > (p_channel COLLATE "C", p_priority)
    AND m.available_at <= p_now
  ORDER BY m.channel, m.priority LIMIT 1;
END
$$;
