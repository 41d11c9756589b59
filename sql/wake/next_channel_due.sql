-- Returns the time at which the next message in the channels of one topic is due.
-- Called by: next_due, renotify_stale. Locks: nothing. p_held: a claim held back what is already due; look beyond it.
-- The next one by time is one entry of an index. It may be one that waits behind others of its channel: then the worker
-- looks once in vain.
-- Result: NULL = nothing waits.
CREATE OR REPLACE FUNCTION messages.next_channel_due(p_topic text, p_now timestamptz, p_held boolean)
RETURNS timestamptz
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_from timestamptz := messages.channel_low_water(p_topic);
BEGIN
  -- The clock's resolution is 1 us: nothing lies between.
  IF p_held THEN
    v_from := greatest(v_from, p_now + interval '1 us');
  END IF;
  RETURN (
    SELECT m.available_at FROM messages.message AS m
    WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL AND m.available_at >= v_from
    ORDER BY m.available_at LIMIT 1);
END
$$;
