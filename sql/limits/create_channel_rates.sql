-- Create the rows of messages.rate that claims lock while they count the running messages of a channel.
-- Called by: lock_channels, for channels whose row it did not get. Locks: the topic's row of messages.mutex until the transaction ends,
-- only if free at once: two claims that insert the same rows would wait for each other. A claim that does not get the lock leaves the
-- channels without a row to a later claim.
-- Result: whether it made any.
CREATE OR REPLACE FUNCTION messages.create_channel_rates(p_topic text, p_channels text[])
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  v_new text[] := ARRAY(
    SELECT DISTINCT c.channel
    FROM unnest(p_channels) AS c (channel)
    -- No NOT EXISTS: its plan may read all rows of the topic for each channel.
    LEFT JOIN LATERAL (
      SELECT true AS is_there FROM messages.rate AS r WHERE r.kind = 'channel' AND r.topic = p_topic AND r.channel = c.channel LIMIT 1
    ) AS r ON true
    WHERE r.is_there IS NULL);
BEGIN
  IF v_new = '{}' OR NOT messages.lock_mutex('channels', p_topic) THEN
    RETURN false;
  END IF;
  INSERT INTO messages.rate (kind, topic, channel) SELECT 'channel', p_topic, c.channel FROM unnest(v_new) AS c (channel)
  ON CONFLICT DO NOTHING;
  RETURN FOUND;
END
$$;
