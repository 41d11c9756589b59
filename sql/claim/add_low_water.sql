-- Enter a place into the directory of those that low-water marks are kept for.
-- Called by: pick_topic, for each place it took from; pick_channels, with the priority -1. Locks: a row of messages.mutex until the transaction ends, tried only: an INSERT of the
-- same place would wait for the other claim to commit, and two claims in opposite order for each other. Who does not get it leaves the
-- entry to a later claim.
CREATE OR REPLACE FUNCTION messages.note_place(p_topic text, p_priority smallint)
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
