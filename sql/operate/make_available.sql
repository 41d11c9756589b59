-- Make messages available that wait for a time, and the ordered channels that wait for them.
-- Called by: retry_now, signal. Not granted to any role. p_ids: live messages that are not blocked by predecessors;
-- those that run stay as they are.
-- Locks: the rows, in the order of their ids, waiting for any transaction that claims them right now; then the
-- channels' rows of messages.rate. Notifies for the topics.
-- Result: the ids that no longer wait, and their topics.
CREATE OR REPLACE FUNCTION messages.make_available(p_ids bigint[], OUT ids bigint[], OUT topics text[])
LANGUAGE plpgsql
AS $$
DECLARE
  v_now     timestamptz;
  v_ids     bigint[];
  v_blocked bigint[];
BEGIN
  -- Before the clock is read: a message must not seem older than its transaction, or claims look for it too late.
  PERFORM pg_current_xact_id();
  v_now := messages.now();
  SELECT array_agg(m.id)
  INTO v_ids
  FROM (
    SELECT m.id FROM messages.message AS m
    WHERE m.id = ANY (p_ids) AND m.claim_id IS NULL
      AND NOT EXISTS (SELECT FROM messages.blocked_message AS k WHERE k.id = m.id)
    ORDER BY m.id FOR NO KEY UPDATE
  ) AS m;
  IF v_ids IS NULL THEN
    ids := '{}'::bigint[];
    RETURN;
  END IF;

  -- In an ordered channel a message keeps its place, and the channel is closed until its next attempt.
  PERFORM FROM messages.rate AS r
  JOIN (
    SELECT DISTINCT m.topic::text AS topic, m.channel::text AS channel FROM messages.message AS m
    WHERE m.id = ANY (v_ids)
  ) AS c
    ON r.kind = 'channel' AND r.topic = c.topic AND r.channel = c.channel
  WHERE r.blocked_by = ANY (v_ids)
  ORDER BY r.topic, r.channel
  FOR UPDATE OF r;
  WITH freed AS (
    UPDATE messages.rate AS r
    SET blocked_until = v_now
    WHERE (r.kind, r.topic, r.channel) IN (
        SELECT 'channel', m.topic::text, m.channel::text FROM messages.message AS m
        WHERE m.id = ANY (v_ids) AND m.channel IS NOT NULL)
      AND r.blocked_by = ANY (v_ids) AND r.blocked_until > v_now
    RETURNING r.blocked_by
  )
  SELECT array_agg(f.blocked_by) INTO v_blocked FROM freed AS f;
  WITH moved AS (
    UPDATE messages.message AS m
    SET available_at = least(m.available_at, v_now)
    WHERE m.id = ANY (v_ids) AND (m.available_at > v_now OR m.id = ANY (v_blocked))
    RETURNING m.id, m.topic::text AS topic
  )
  SELECT coalesce(array_agg(m.id ORDER BY m.id), '{}'), array_agg(DISTINCT m.topic) INTO ids, topics
  FROM moved AS m;
  PERFORM messages.notify_topics(topics, v_now);
END
$$;
