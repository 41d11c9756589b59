-- List the topics whose breaker is open, with what to do. One whose topic has no breaker any more does not count.
-- Called by: conditions, open_conditions. Locks: nothing. Result: one row per topic.
CREATE OR REPLACE FUNCTION messages.open_breakers()
RETURNS TABLE (topic text, since timestamptz, what text, fix text)
LANGUAGE sql
STABLE
AS $$
  SELECT s.topic, s.breaker_changed_at, format('the breaker of %s is open: %s', s.topic, s.breaker_reason),
         messages.breaker_advice(s.topic)
  FROM messages.topic_state(ARRAY(SELECT b.topic FROM messages.breaker AS b WHERE b.position = 'open')) AS s
  WHERE s.breaker <> 'closed'
$$;
