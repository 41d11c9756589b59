-- Apply the current minimum interval to locked channels: an interval that was shortened or lifted since holds no
-- channel back.
-- Called by: channel_slots, which holds their locks. Locks: nothing more. p_locked: as from lock_channels. A time that
-- a shorter interval brings forward is stored, so that it is computed once and not by each claim.
-- Result: p_locked with these times; the rest as it was.
CREATE OR REPLACE FUNCTION messages.clamp_channel_rates(p_policy messages.policy, p_locked messages.rate[])
RETURNS messages.rate[]
LANGUAGE plpgsql
AS $$
DECLARE
  -- Read under the locks: nothing that was charged by the interval of now lies further ahead than that.
  v_now    timestamptz := messages.now();
  v_eased  messages.rate[];
  v_sooner messages.rate[];
BEGIN
  IF NOT EXISTS (SELECT FROM unnest(p_locked) AS l WHERE l.free_at > v_now) THEN
    RETURN p_locked;
  END IF;
  SELECT array_agg(n.eased ORDER BY n.nth), array_agg(n.eased) FILTER (WHERE n.is_sooner)
  INTO v_eased, v_sooner
  FROM (
    SELECT l.nth, i.span > '0' AND v_now + i.span < l.free_at AS is_sooner,
           (l.kind, l.topic, l.channel,
            CASE WHEN (l.free_at > v_now) IS NOT TRUE THEN l.free_at
              WHEN i.span > '0' THEN least(l.free_at, v_now + i.span) ELSE '-infinity' END,
            l.blocked_until, l.blocked_by)::messages.rate AS eased
    FROM unnest(p_locked) WITH ORDINALITY AS l (kind, topic, channel, free_at, blocked_until, blocked_by, nth)
    LEFT JOIN LATERAL (
      SELECT o.min_interval FROM messages.channel AS o
      WHERE l.free_at > v_now AND o.topic = p_policy.topic AND o.channel = l.channel LIMIT 1
    ) AS o ON true
    CROSS JOIN LATERAL (SELECT coalesce(o.min_interval, p_policy.channel_min_interval) AS span) AS i
  ) AS n;

  UPDATE messages.rate AS r
  SET free_at = s.free_at
  FROM (
    SELECT own.ctid, e.free_at
    FROM unnest(v_sooner) AS e
    CROSS JOIN LATERAL (
      SELECT x.ctid FROM messages.rate AS x
      WHERE x.kind = 'channel' AND x.topic = p_policy.topic AND x.channel = e.channel LIMIT 1
    ) AS own
  ) AS s
  WHERE v_sooner IS NOT NULL AND r.ctid = s.ctid;
  RETURN v_eased;
END
$$;
