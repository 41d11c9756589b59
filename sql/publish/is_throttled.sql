-- Tells whether a key must not start again: its last message waits, or started less than p_throttle ago.
-- Called by: throttle_key, prune_throttles. Locks: nothing. It is VOLATILE, for the message of a session that committed
-- during the caller's statement must be seen. The publish counts if nothing tells when the message started: it was
-- copied to subscribers and never runs, or it was deleted, also by its success with archive_success none.
-- A day is more than any transaction takes that claims and archives, so older days of the archive are not read.
CREATE OR REPLACE FUNCTION messages.is_throttled(p_taken messages.throttled_key, p_throttle interval)
RETURNS boolean
LANGUAGE plpgsql
VOLATILE
AS $$
DECLARE
  v_since timestamptz := messages.now() - p_throttle;
BEGIN
  -- One statement: a message may end at this moment.
  RETURN coalesce(
    (
      SELECT m.claim_id IS NULL OR m.prefetched IS TRUE OR m.locked_at > v_since
      FROM messages.message AS m
      WHERE m.id = p_taken.message_id
      UNION ALL
      SELECT coalesce(
        a.locked_at, (a.history -> -1 ->> 'started')::timestamptz,
        CASE WHEN a.result = 'success' THEN p_taken.published_at END, '-infinity') > v_since
      FROM messages.message_archive AS a
      WHERE a.id = p_taken.message_id AND a.archived_at > v_since - interval '1 day'
      LIMIT 1
    ),
    p_taken.published_at > v_since);
END
$$;
