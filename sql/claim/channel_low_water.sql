-- The low-water mark of one topic's channels: none of their ready messages has an earlier time.
-- Called by: pick_with_channel, next_channel_due. Locks: nothing. Result: '-infinity' where there is no mark.
-- It is stored with the marks of the topic's other messages, with the priority -1.
CREATE OR REPLACE FUNCTION messages.channel_low_water(p_topic text)
RETURNS timestamptz
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  RETURN coalesce((SELECT w.at FROM messages.low_water AS w WHERE w.topic = p_topic AND w.priority = -1), '-infinity');
END
$$;
