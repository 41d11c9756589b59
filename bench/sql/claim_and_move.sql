-- The limit of the drain: what plain SQL does at its best. One run claims a thousand messages, hands ids and payloads to the client,
-- and moves them to the archive while their claim still holds. No policies, no limits, no history: nothing but the two writes.
-- The fence says IS NOT DISTINCT FROM and not "=": that would let the planner read all locked rows once per id.
SELECT 1 + floor(random() * 4503599627370496)::bigint AS claim \gset
WITH claimed AS (
  UPDATE messages.message AS m
  SET claim_id = :claim,
      locked_by = 'plain SQL',
      locked_at = clock_timestamp(),
      lock_expires_at = clock_timestamp() + interval '30 s',
      attempts = m.attempts + 1, runs = m.runs + 1
  WHERE m.ctid = ANY (ARRAY(
    SELECT r.ctid
    FROM messages.message AS r
    WHERE r.topic = 'noop' AND r.priority = 5 AND r.claim_id IS NULL AND r.channel IS NULL AND r.available_at <= now()
    ORDER BY r.available_at, r.id
    LIMIT 1000
    FOR NO KEY UPDATE SKIP LOCKED))
  RETURNING m.id, m.payload::text AS payload
)
SELECT array_agg(c.id) AS ids, array_agg(c.payload) AS payloads FROM claimed AS c \gset
WITH gone AS (
  DELETE FROM messages.message AS m
  USING unnest(CAST(:ids AS bigint[])) AS e (id)
  WHERE m.id = e.id AND m.claim_id IS NOT DISTINCT FROM :claim
  RETURNING m.*
)
INSERT INTO messages.message_archive (
  id, topic, channel, key, priority, payload, body, headers, state, progress,
  created_at, available_at, expires_at, attempts, runs, max_attempts, claim_id, locked_at, history,
  original_topic, dlq_moved_at, redriven_from, result, handled_by)
SELECT
  g.id, g.topic, g.channel, g.key, g.priority, g.payload, g.body, g.headers, g.state, g.progress,
  g.created_at, g.available_at, g.expires_at, g.attempts, g.runs, g.max_attempts, g.claim_id, g.locked_at, g.history,
  g.original_topic, g.dlq_moved_at, g.redriven_from, 'success', g.locked_by
FROM gone AS g;
