-- The state and the counts of each batch.
-- Read by: everything that shows batches. Locks: nothing.
-- state: open; closed, while messages of it have not ended; cancelled, the same after its cancellation; finished.
-- live: messages that have not ended. estimated_end: if the rest takes as long as what has ended since the first end;
-- NULL if nothing has ended, or nothing is left. callbacks: by event, the topic, and the id of the message that was
-- published there.
CREATE OR REPLACE VIEW messages.batch_state
WITH (security_invoker = true) AS
SELECT
  b.id, b.name::text AS name,
  CASE
    WHEN b.finished_at IS NOT NULL THEN 'finished'
    WHEN b.cancelled_at IS NOT NULL THEN 'cancelled'
    WHEN b.closed_at IS NOT NULL THEN 'closed'
    ELSE 'open'
  END AS state,
  n.live + n.succeeded + n.dead + n.cancelled AS total, n.live, n.succeeded, n.dead, n.cancelled,
  b.created_at, b.created_by, b.closed_at, b.cancelled_at, b.finished_at, n.first_ended_at, n.last_ended_at,
  CASE WHEN n.live > 0 AND n.first_ended_at IS NOT NULL THEN least(
    messages.now() + n.live * greatest(messages.now() - n.first_ended_at, '0')
      / nullif(n.succeeded + n.dead + n.cancelled, 0)::double precision,
    '9000-01-01 00:00+00') END AS estimated_end,
  c.callbacks
FROM messages.batch AS b
CROSS JOIN LATERAL (
  SELECT coalesce(sum(s.live), 0)::bigint AS live, coalesce(sum(s.succeeded), 0)::bigint AS succeeded,
         coalesce(sum(s.dead), 0)::bigint AS dead, coalesce(sum(s.cancelled), 0)::bigint AS cancelled,
         min(s.first_ended_at) AS first_ended_at, max(s.last_ended_at) AS last_ended_at
  FROM messages.batch_shard AS s WHERE s.batch_id = b.id) AS n
CROSS JOIN LATERAL (
  SELECT jsonb_object_agg(
    k.event, jsonb_strip_nulls(jsonb_build_object('topic', k.topic, 'message', k.message_id, 'error', k.error))
  ) AS callbacks
  FROM messages.batch_callback AS k WHERE k.batch_id = b.id) AS c;
