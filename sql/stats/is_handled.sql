-- Whether somebody works a topic: the one rule of what counts as handled.
-- Called by: conditions, stats, unhandled_topics, examine_workers, explain_stopped. Locks: nothing.
-- A worker of the registry that is alive and not stopping and names the topic; or one outside it (in plain SQL) that sleeps armed for
-- the topic, or holds a message of it whose lock has not expired. A daemon of the registry is judged by its row alone: what it still holds while
-- it stops, or after it died, says nothing of new ones. A worker over HTTP gives signs only when it asks for something: while it holds a message,
-- and was not told to drain, it works. The sleeper '*' is a policy, not somebody.
-- The limit: of those outside, one that neither sleeps armed nor holds a message at this moment is not seen; and of a topic's locked messages
-- it looks at 1000.
CREATE OR REPLACE FUNCTION messages.is_handled(p_topic text)
RETURNS boolean
LANGUAGE plpgsql
STABLE
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
BEGIN
  RETURN EXISTS (
      SELECT FROM messages.worker AS w
      WHERE p_topic = ANY (w.topics) AND NOT w.stopping AND w.seen_at > clock_timestamp() - interval '1 minute')
    OR EXISTS (
      SELECT FROM messages.sleeper AS s
      WHERE s.worker <> '*' AND s.armed_until > clock_timestamp() AND (s.topics IS NULL OR p_topic = ANY (s.topics))
        AND NOT EXISTS (SELECT FROM messages.worker AS w WHERE w.name = s.worker))
    OR EXISTS (
      SELECT FROM (
        SELECT m.locked_by, m.lock_expires_at FROM messages.message AS m
        WHERE m.topic = p_topic COLLATE "C" AND m.claim_id IS NOT NULL
        LIMIT 1000) AS h
      WHERE h.lock_expires_at > messages.now()
        AND NOT EXISTS (
          SELECT FROM messages.worker AS w
          WHERE w.name IN (h.locked_by, regexp_replace(h.locked_by, '/[0-9]+$', '')) AND (w.kind = 'daemon' OR w.stopping)));
END
$$;
