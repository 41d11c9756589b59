-- Lock the next ready rows of the given (channel, priority) pairs of one topic: one of each, then a second of each, and
-- so on.
-- Called by: pick_with_channel. p_slots: the maximum number of each channel. Locks: the rows, skipping those that
-- others hold; in an ordered topic only the first row of a channel, so that no second row overtakes a locked first one.
-- Result: as pick. p_low: nothing that is ready has an earlier time. Ordered channels are read from their first entry
-- anyway: a mark that is wrong for a moment would change their order.
CREATE OR REPLACE FUNCTION messages.pick_channel_rows(
  p_policy messages.policy, p_now timestamptz, p_channels text[], p_priorities smallint[], p_slots integer[],
  p_limit integer, p_bytes bigint, p_low timestamptz
)
RETURNS messages.picked
LANGUAGE plpgsql
AS $$
DECLARE
  v_picked messages.picked;
  v_low    timestamptz := CASE WHEN p_policy.ordered THEN '-infinity' ELSE p_low END;
BEGIN
  SELECT array_agg(r.ctid ORDER BY r.nth, r.place) FILTER (WHERE r.fate = 'work'),
         sum(r.bytes) FILTER (WHERE r.fate = 'work'),
         array_agg(r.id) FILTER (WHERE r.fate = 'over'), array_agg(r.id) FILTER (WHERE r.fate = 'expired'),
         false, NULL::timestamptz
  INTO v_picked
  FROM (
    SELECT t.*, sum(t.bytes) OVER (ORDER BY t.nth, t.place) - t.bytes AS bytes_before
    FROM (
      SELECT n.ctid, n.id, n.bytes, n.fate, c.place, c.room,
             row_number() OVER (PARTITION BY c.channel ORDER BY c.priority, n.available_at, n.id) AS nth
      FROM unnest(p_channels, p_priorities, p_slots) WITH ORDINALITY AS c (channel, priority, room, place)
      CROSS JOIN LATERAL (
        SELECT m.ctid, m.id, m.available_at,
               CASE
                 WHEN m.content_bytes > 33554432 THEN 0
                 ELSE coalesce(m.content_bytes, 0) + coalesce(messages.jsonb_text_bytes(m.state), 0)
               END AS bytes,
               CASE
                 WHEN m.expires_at <= p_now THEN 'expired'
                 WHEN m.content_bytes > 33554432 THEN 'over'
                 WHEN m.attempts >= nullif(coalesce(m.max_attempts, p_policy.max_attempts), 0) THEN 'over'
                 ELSE 'work'
               END AS fate
        FROM messages.message AS m
        WHERE m.topic = p_policy.topic AND m.channel = c.channel AND m.priority = c.priority
          AND m.claim_id IS NULL AND m.channel IS NOT NULL AND m.available_at >= v_low AND m.available_at <= p_now
          AND (NOT p_policy.ordered OR m.id = (
            SELECT f.id FROM messages.message AS f
            WHERE f.topic = p_policy.topic AND f.channel = c.channel AND f.priority = c.priority
              AND f.claim_id IS NULL AND f.channel IS NOT NULL
            ORDER BY f.available_at, f.id LIMIT 1))
        ORDER BY m.available_at, m.id
        LIMIT c.room
        FOR NO KEY UPDATE SKIP LOCKED) AS n
    ) AS t
    WHERE t.nth <= t.room
    ORDER BY t.nth, t.place
    LIMIT p_limit
  ) AS r
  WHERE r.bytes_before < p_bytes;
  RETURN v_picked;
END
$$;
