-- Leave out those of the given (channel, priority) pairs whose channel is held, as far as can be seen without a lock.
-- Called by: pick_with_channel, after it met a held channel: where one is held, thousands may be, and locking each of
-- them, as channel_slots does, takes three times as long. Locks: nothing. It leaves out only what channel_slots would
-- give no slot. Channels with settings of their own, and with times that a shorter interval may bring forward, are left
-- to channel_slots.
-- Result: the other pairs in their order, NULL = none is left; until: when to look again for those left out, NULL = not
-- known.
CREATE OR REPLACE FUNCTION messages.unheld_channels(
  p_policy messages.policy, p_channels text[], p_priorities smallint[], p_now timestamptz,
  OUT channels text[], OUT priorities smallint[], OUT until timestamptz
)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_special     boolean := EXISTS (SELECT FROM messages.channel AS o WHERE o.topic = p_policy.topic);
  v_concurrency integer := CASE WHEN p_policy.ordered THEN 1 ELSE p_policy.channel_concurrency END;
BEGIN
  SELECT array_agg(c.channel ORDER BY c.place) FILTER (WHERE look.until IS NULL),
         array_agg(c.priority ORDER BY c.place) FILTER (WHERE look.until IS NULL),
         nullif(min(look.until), 'infinity')
  INTO channels, priorities, until
  FROM unnest(p_channels, p_priorities) WITH ORDINALITY AS c (channel, priority, place)
  CROSS JOIN LATERAL (
    SELECT CASE
      WHEN v_special AND (
        SELECT true FROM messages.channel AS o WHERE o.topic = p_policy.topic AND o.channel = c.channel
      ) THEN NULL
      WHEN v_concurrency <= (
        SELECT count(*) FROM (
          SELECT FROM messages.message AS m
          WHERE m.topic = p_policy.topic AND m.channel = c.channel AND m.claim_id IS NOT NULL
          LIMIT coalesce(v_concurrency, 0)) AS running) THEN 'infinity'
      ELSE (
        SELECT CASE
          WHEN r.free_at > p_now AND r.free_at <= p_now + p_policy.channel_min_interval THEN r.free_at
          WHEN r.blocked_until > p_now
            AND (SELECT f.claim_id IS NULL FROM messages.message AS f WHERE f.id = r.blocked_by) THEN r.blocked_until
        END
        FROM messages.rate AS r
        WHERE r.kind = 'channel' AND r.topic = p_policy.topic AND r.channel = c.channel)
    END AS until
    -- Without OFFSET 0 it would be computed once for each use of it.
    OFFSET 0) AS look;
END
$$;
