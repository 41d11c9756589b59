-- Record when the channels that a claim took from may be read again, where they have a minimum interval.
-- Called by: pick_with_channel, which holds the locks of lock_channels. Locks: nothing more.
-- Rows are given by address, so that no plan can read all rows of the topic for each channel.
CREATE OR REPLACE FUNCTION messages.charge_channel_rates(p_policy messages.policy, p_rows tid[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_now timestamptz := messages.now();
BEGIN
  IF p_policy.channel_min_interval IS NULL
    AND NOT EXISTS (SELECT FROM messages.channel AS o WHERE o.topic = p_policy.topic AND o.min_interval > '0') THEN
    RETURN;
  END IF;
  UPDATE messages.rate AS r
  SET free_at = v_now + took.min_interval
  FROM (
    SELECT own.ctid, nullif(coalesce(o.min_interval, p_policy.channel_min_interval), '0') AS min_interval
    FROM (
      SELECT DISTINCT m.channel
      FROM unnest(p_rows) AS p (ctid)
      JOIN messages.message AS m ON m.ctid = p.ctid
    ) AS c
    CROSS JOIN LATERAL (
      SELECT x.ctid FROM messages.rate AS x
      WHERE x.kind = 'channel' AND x.topic = p_policy.topic AND x.channel = c.channel LIMIT 1
    ) AS own
    LEFT JOIN LATERAL (
      SELECT s.min_interval FROM messages.channel AS s WHERE s.topic = p_policy.topic AND s.channel = c.channel LIMIT 1
    ) AS o ON true
  ) AS took
  WHERE r.ctid = took.ctid AND took.min_interval IS NOT NULL;
END
$$;
