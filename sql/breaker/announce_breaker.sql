-- Say that a breaker opened or closed, or that a probe failed: a WARNING in the server's log, NOTIFY topic_changed, and a ring where there is
-- work to do again. p_was: where it stood before. An alert goes into the outbox only when that changed: a probe that failed is no second
-- opening, and sinks repeat what goes on by themselves.
-- Called by: judge, judge_all. Locks: nothing but the row it inserts.
CREATE OR REPLACE FUNCTION messages.tell_breaker(p_breaker messages.breaker, p_was text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE WARNING 'breaker of topic % is %: %', p_breaker.topic, p_breaker.position, p_breaker.why;
  IF p_breaker.position <> p_was THEN
    INSERT INTO messages.alert (kind, topic, result, sample_error, mend)
    VALUES ('breaker', p_breaker.topic, p_breaker.position, p_breaker.why, messages.breaker_advice(p_breaker.topic));
  END IF;
  PERFORM messages.notify('topic_changed', ARRAY[p_breaker.topic::text]);
  IF p_breaker.position = 'closed' THEN
    PERFORM messages.ring(ARRAY[p_breaker.topic], messages.now());
  END IF;
END
$$;
