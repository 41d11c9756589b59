-- The state of every message, live or archived, as one word: that of messages.live_state, or its result.
CREATE OR REPLACE VIEW messages.state
WITH (security_invoker = true) AS
SELECT
  m.id, m.topic, m.channel, m.key, m.priority,
  messages.live_state(m.id, m.topic, m.channel, m.claim_id, m.available_at, m.history,
                      (SELECT messages.now())) AS state,
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
