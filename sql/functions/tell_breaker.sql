-- Say that a breaker opened or closed: a WARNING in the server's log, an alert in the outbox, NOTIFY topic_changed, and a ring where there
-- is work to do again.
-- Called by: judge. Locks: nothing but the row it inserts.
CREATE OR REPLACE FUNCTION messages.tell_breaker(p_breaker messages.breaker)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE WARNING 'breaker of topic % is %: %', p_breaker.topic, p_breaker.position, p_breaker.why;
  INSERT INTO messages.alert (kind, topic, result, sample_error)
  VALUES ('breaker', p_breaker.topic, p_breaker.position, p_breaker.why);
  PERFORM pg_notify('topic_changed', p_breaker.topic);
  IF p_breaker.position = 'closed' THEN
    PERFORM messages.ring(ARRAY[p_breaker.topic], messages.now());
  END IF;
END
$$;
