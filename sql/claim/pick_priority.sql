-- Lock the next ready rows of one topic and priority that have no channel, in the order of their time.
-- Called by: pick_without_channel. p_low: no ready row is earlier. It ends with the row that reaches p_bytes.
-- Locks: the rows, skipping those that others hold. Result: the rows to claim, and those that end instead: attempts
-- used up (the limit was lowered since), too large (inserted before the domains refused that), or expired. Nothing is
-- ever hidden. The bytes are those that claim returns.
CREATE OR REPLACE FUNCTION messages.pick_priority(
  p_policy messages.policy, p_now timestamptz, p_priority smallint, p_low timestamptz, p_limit integer, p_bytes bigint
)
RETURNS messages.picked
LANGUAGE plpgsql
AS $$
DECLARE
  v_picked messages.picked;
BEGIN
  SELECT array_agg(r.ctid) FILTER (WHERE r.fate = 'work'), sum(r.bytes) FILTER (WHERE r.fate = 'work'),
         array_agg(r.id) FILTER (WHERE r.fate = 'over'), array_agg(r.id) FILTER (WHERE r.fate = 'expired'),
         false, NULL::timestamptz
  INTO v_picked
  FROM (
    SELECT n.ctid, n.id, n.fate, n.bytes, sum(n.bytes) OVER (ORDER BY n.available_at, n.id) - n.bytes AS bytes_before
    FROM (
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
      WHERE m.topic = p_policy.topic AND m.priority = p_priority AND m.claim_id IS NULL AND m.channel IS NULL
        AND m.available_at >= p_low AND m.available_at <= p_now
      ORDER BY m.available_at, m.id
      LIMIT p_limit
      FOR NO KEY UPDATE SKIP LOCKED
    ) AS n
  ) AS r
  WHERE r.bytes_before < p_bytes;
  RETURN v_picked;
END
$$;
