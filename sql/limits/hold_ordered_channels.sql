-- Hold channels of ordered topics until the first message in each may be tried again.
-- Called by: retry, return_attempts. Its available_at does not change, so it keeps its position; nothing after it is
-- claimed during the hold. The hold lasts only while that message waits: once it is claimed, cancelled or skipped, the
-- channel continues.
-- Locks: the channels' rows of messages.rate, in the order of their key; a claim may hold one for as long as it takes.
CREATE OR REPLACE FUNCTION messages.hold_ordered_channels(p_blocks messages.channel_block[])
RETURNS void
LANGUAGE sql
AS $$
  INSERT INTO messages.rate AS r (kind, topic, channel, blocked_until, blocked_by)
  SELECT 'channel', b.topic, b.channel, b.until, b.message_id
  FROM unnest(p_blocks) AS b
  ORDER BY b.topic, b.channel
  ON CONFLICT (kind, topic, channel) DO UPDATE
    SET blocked_until = excluded.blocked_until, blocked_by = excluded.blocked_by
$$;
