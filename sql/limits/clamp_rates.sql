-- Apply the current rates to what was charged under stricter ones: free_at lies at most burst / rate ahead of the
-- clock, which is an empty bucket.
-- Called by: the trigger topic_changed; and prune, since a session that read the old policy may still charge by it
-- afterwards.
-- Locks: the rows that it changes, skipping those that another session is charging. Result: how many.
CREATE OR REPLACE FUNCTION messages.clamp_rates()
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_kinds  text[];
  v_topics text[];
  v_spans  interval[];
BEGIN
  SELECT array_agg(l.kind), array_agg(l.topic), array_agg(l.span)
  INTO v_kinds, v_topics, v_spans
  FROM (
    SELECT r.kind, r.topic, make_interval(secs => e.burst / e.rate) AS span
    FROM messages.rate AS r
    CROSS JOIN LATERAL (
      SELECT p.dequeue_rate, p.burst FROM messages.claim_policy(r.topic, v_now) AS p WHERE r.kind = 'dequeue'
      UNION ALL
      SELECT a.publish_rate, a.burst FROM messages.publish_policy(r.topic) AS a WHERE r.kind = 'publish'
    ) AS e (rate, burst)
    WHERE r.kind IN ('dequeue', 'publish') AND r.free_at > v_now
      AND r.free_at > v_now + make_interval(secs => e.burst / e.rate)
    FOR NO KEY UPDATE OF r SKIP LOCKED
  ) AS l;
  IF v_kinds IS NULL THEN
    RETURN 0;
  END IF;
  -- The clock is read after the rows are locked: by an older clock, a session that charged before the lock would get
  -- some of it back.
  v_now := messages.now();
  UPDATE messages.rate AS r
  SET free_at = least(r.free_at, v_now + l.span)
  FROM unnest(v_kinds, v_topics, v_spans) AS l (kind, topic, span)
  WHERE r.kind = l.kind AND r.topic = l.topic AND r.channel = '';
  RETURN cardinality(v_kinds);
END
$$;
