-- Add a place to the directory of low-water marks.
-- Called by: pick_without_channel, for each place it took from; pick_with_channel, with the priority -1. Locks: a row
-- of messages.mutex until the transaction ends, only if free at once: an INSERT of the same place would wait for the
-- other claim to commit, and two claims in opposite order would deadlock. A claim that does not get the lock leaves the
-- entry to a later claim.
CREATE OR REPLACE FUNCTION messages.add_low_water(p_topic text, p_priority smallint)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM messages.low_water AS w WHERE w.topic = p_topic AND w.priority = p_priority)
     AND messages.lock_mutex('low_water') THEN
    INSERT INTO messages.low_water (topic, priority) VALUES (p_topic, p_priority) ON CONFLICT DO NOTHING;
  END IF;
END
$$;
