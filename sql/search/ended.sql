-- Each message that ended, with how it ended and how long that took, without its contents: for reports, dbt and people
-- with messages_analyst. wait_s, run_s: of the last attempt; NULL if the message was never claimed. total_s: from when
-- it was first due; the archive keeps only the last available_at, so for a message that was tried before it begins with
-- created_at.
CREATE OR REPLACE VIEW messages.ended
WITH (security_invoker = true) AS
SELECT
  a.id, a.topic, a.channel, a.result, a.result NOT IN ('success', 'cancelled') AS is_dead,
  a.attempts, a.runs, a.handled_by, a.created_at, a.locked_at, a.archived_at,
  CASE WHEN a.locked_at IS NOT NULL
    THEN greatest(extract(epoch FROM a.locked_at - a.available_at), 0) END::double precision AS wait_s,
  CASE WHEN a.locked_at IS NOT NULL
    THEN greatest(extract(epoch FROM a.archived_at - a.locked_at), 0) END::double precision AS run_s,
  greatest(extract(epoch FROM a.archived_at - CASE
    WHEN a.history IS NOT NULL OR a.attempts > 1 THEN a.created_at
    ELSE greatest(a.created_at, a.available_at)
  END), 0)::double precision AS total_s,
  a.error, a.error_fingerprint, a.redriven_from, a.archive_xid
FROM messages.message_archive AS a;
