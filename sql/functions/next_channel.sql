-- The walk over one topic's channels: the first (channel, priority) after the given one that has a message which is due.
-- Called by: messages.claim_channels, messages.next_due. Locks: nothing. Result: channel NULL at the end.
-- A loose scan: it reads one entry of each (channel, priority) that it passes, however many delayed messages stand there.
CREATE OR REPLACE FUNCTION messages.next_channel(
  p_topic text, p_channel text, p_priority smallint, p_now timestamptz, OUT channel text, OUT priority smallint
)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_first timestamptz;
BEGIN
  channel := p_channel;
  priority := p_priority;
  LOOP
    SELECT m.channel, m.priority, m.available_at INTO channel, priority, v_first
    FROM messages.message AS m
    WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL
      AND (m.channel, m.priority) > (next_channel.channel COLLATE "C", next_channel.priority)
    ORDER BY m.channel, m.priority, m.available_at LIMIT 1;
    EXIT WHEN channel IS NULL OR v_first <= p_now;
  END LOOP;
END
$$;
