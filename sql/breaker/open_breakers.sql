-- List the topics whose breaker is open, with what to do. One whose topic has no breaker any more does not count.
-- Called by: conditions, open_conditions. Locks: nothing. Result: one row per topic.
CREATE OR REPLACE FUNCTION messages.open_breakers()
RETURNS TABLE (topic text, since timestamptz, what text, fix text)
LANGUAGE sql
STABLE
AS $$
  SELECT b.topic, b.changed_at, format('the breaker of %s is open: %s', b.topic, b.reason), messages.breaker_advice(b.topic)
  FROM messages.breaker AS b
  CROSS JOIN messages.topic AS d
  LEFT JOIN messages.topic AS t ON t.topic = b.topic
  WHERE b.position = 'open' AND d.topic = '*' AND coalesce(t.breaker, d.breaker) IS NOT NULL
$$;
