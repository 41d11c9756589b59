-- Count the attempts that ended since the last update, and open or close the breaker of a topic.
-- Called by: count_breaker_attempts, and tick through update_breakers for the rest. Locks: the breaker's row, only if
-- free at once: its holder counts next time what it cannot see yet. For a topic without one, a row of messages.mutex,
-- also only if free at once: an INSERT of the same row would wait for the other session to commit, and two sessions
-- that settle in opposite order would deadlock. Opening and closing raise an alert; these, and a probe that failed,
-- NOTIFY topic_changed.
-- Result: the breaker's position; NULL = another session is updating it, or creates one.
CREATE OR REPLACE FUNCTION messages.update_breaker(p_topic text, p_policy jsonb)
RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
  v_was       messages.breaker;
  v_is        messages.breaker;
  v_succeeded bigint;
  v_failed    bigint;
BEGIN
  IF NOT EXISTS (SELECT FROM messages.breaker AS b WHERE b.topic = p_topic) AND messages.lock_mutex('breakers') THEN
    INSERT INTO messages.breaker (topic) VALUES (p_topic) ON CONFLICT DO NOTHING;
  END IF;
  SELECT b.* INTO v_was FROM messages.breaker AS b WHERE b.topic = p_topic FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;

  WITH counted AS (
    DELETE FROM messages.breaker_count AS c WHERE c.topic = p_topic RETURNING c.succeeded, c.failed
  )
  SELECT coalesce(sum(c.succeeded), 0), coalesce(sum(c.failed), 0) INTO v_succeeded, v_failed FROM counted AS c;
  v_is := messages.next_breaker_state(v_was, p_policy, v_succeeded, v_failed, messages.now());
  UPDATE messages.breaker AS b
  SET position = v_is.position, window_began_at = v_is.window_began_at, succeeded = v_is.succeeded,
      failed = v_is.failed,
      changed_at = v_is.changed_at, probe_at = v_is.probe_at, reason = v_is.reason
  WHERE b.topic = p_topic;
  -- Each probe that failed sets another probe_at.
  IF (v_is.position, v_is.probe_at) IS DISTINCT FROM (v_was.position, v_was.probe_at) THEN
    PERFORM messages.announce_breaker(v_is, v_was.position);
  END IF;
  RETURN v_is.position;
END
$$;
