-- Lock the channels that a claim is about to count.
-- Called by: channel_slots. Locks: the row of each channel in messages.rate until the transaction ends, skipping those that another claim
-- has locked; it waits for no lock. (Advisory locks would work, but run out with a few thousand channels.) Result: the rows, one for each
-- of p_channels; NULL = another claim has it, or it could not be made now.
CREATE OR REPLACE FUNCTION messages.lock_channels(p_topic text, p_channels text[])
RETURNS messages.rate[]
LANGUAGE plpgsql
AS $$
DECLARE
  v_locked  messages.rate[];
  v_missing text[];
BEGIN
  LOOP
    SELECT array_agg(l.locked ORDER BY c.place), array_agg(c.channel) FILTER (WHERE l.locked IS NULL)
    INTO v_locked, v_missing
    FROM unnest(p_channels) WITH ORDINALITY AS c (channel, place)
    LEFT JOIN LATERAL (
      SELECT r AS locked FROM messages.rate AS r
      WHERE r.kind = 'channel' AND r.topic = p_topic AND r.channel = c.channel
      FOR UPDATE SKIP LOCKED
    ) AS l ON true;
    EXIT WHEN v_missing IS NULL OR NOT messages.create_channel_rates(p_topic, v_missing);
  END LOOP;
  RETURN v_locked;
END
$$;
