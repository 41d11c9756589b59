-- Announce that a breaker opened or closed, or that a probe failed: a WARNING in the server's log, NOTIFY
-- topic_changed, and a wake-up where messages may be claimed again. p_was: its position before. An alert is added to
-- the outbox only when that changed: a failed probe is no second opening, and sinks repeat ongoing alerts by
-- themselves.
-- Called by: update_breaker, update_breakers. Locks: nothing but the row it inserts.
CREATE OR REPLACE FUNCTION messages.announce_breaker(p_breaker messages.breaker, p_was text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE WARNING 'breaker of topic % is %: %', p_breaker.topic, p_breaker.position, p_breaker.reason;
  IF p_breaker.position <> p_was THEN
    INSERT INTO messages.alert (kind, topic, result, sample_error, fix)
    VALUES ('breaker', p_breaker.topic, p_breaker.position, p_breaker.reason, messages.breaker_advice(p_breaker.topic));
  END IF;
  PERFORM messages.notify('topic_changed', ARRAY[p_breaker.topic::text]);
  IF p_breaker.position = 'closed' THEN
    PERFORM messages.notify_topics(ARRAY[p_breaker.topic], messages.now());
  END IF;
END
$$;
