-- Returns whether a worker handles a topic: the one definition of handled.
-- Called by: conditions, stats, topic_state, unhandled_topics, examine_workers. Locks: nothing. A worker of the
-- registry that handles (messages.worker_state) and names the topic, or a pattern of it; or one outside it (in plain
-- SQL) that sleeps armed for the topic, or holds a message of it whose lock has not expired. A daemon of the registry
-- counts by its row alone: messages that it still holds while it stops, or after it died, say nothing about new ones. A
-- worker over HTTP shows signs of life only with its requests: while it holds a message, and was not asked to drain, it
-- counts. Limits: an outside worker that neither sleeps armed nor holds a message is not seen; of a topic's locked
-- messages 1000 are checked.
CREATE OR REPLACE FUNCTION messages.is_handled(p_topic text)
RETURNS boolean
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  RETURN EXISTS (
      SELECT FROM messages.worker_state AS w
      WHERE (p_topic = ANY (w.topics) OR w.patterns IS NOT NULL AND messages.patterns_of(p_topic) && w.patterns)
        AND w.handles)
    OR EXISTS (
      SELECT FROM messages.sleeper AS s
      WHERE s.armed_until > clock_timestamp() AND (
          s.topics IS NULL OR p_topic = ANY (s.topics)
          OR s.patterns IS NOT NULL AND messages.patterns_of(p_topic) && s.patterns)
        AND NOT EXISTS (SELECT FROM messages.worker AS w WHERE w.name = s.worker))
    OR EXISTS (
      SELECT FROM (
        SELECT m.locked_by, m.lock_expires_at FROM messages.message AS m
        WHERE m.topic = p_topic COLLATE "C" AND m.claim_id IS NOT NULL
        LIMIT 1000) AS h
      WHERE h.lock_expires_at > messages.now()
        AND NOT EXISTS (
          SELECT FROM messages.worker AS w
          WHERE w.name IN (h.locked_by, messages.worker_of(h.locked_by))
            AND (w.kind = 'daemon' OR w.stopping)));
END
$$;
