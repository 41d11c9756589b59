-- The state of every message, live or archived, as one word.
-- ready: may be claimed; delayed: due later; retrying: due later after a failed attempt; waiting: its handler waits for
-- an event; running: locked; else its result.
CREATE OR REPLACE VIEW messages.state
WITH (security_invoker = true) AS
SELECT
  m.id, m.topic, m.channel, m.key, m.priority,
  CASE
    WHEN m.claim_id IS NOT NULL THEN 'running'
    WHEN m.available_at <= clock_timestamp() THEN 'ready'
    WHEN m.history -> -1 ->> 'outcome' IN ('failed', 'lock_expired') THEN 'retrying'
    WHEN m.history -> -1 ->> 'outcome' = 'waiting' THEN 'waiting'
    ELSE 'delayed'
  END AS state,
  m.attempts, m.created_at, m.available_at, m.locked_by, m.lock_expires_at,
  NULL::timestamptz AS archived_at, NULL::text AS error
FROM messages.message AS m
UNION ALL
SELECT
  a.id, a.topic, a.channel, a.key, a.priority,
  a.result,
  a.attempts, a.created_at, a.available_at, a.handled_by, NULL,
  a.archived_at, a.error
FROM messages.message_archive AS a;
