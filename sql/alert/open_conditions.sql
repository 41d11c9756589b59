-- Returns the conditions that the last tick found, and the breakers that are open now: what the dashboard shows as
-- problems, for the price of a few rows. `level` is `warn` or `fail`, as [the doctor](doctor.md) reports the same
-- condition.
--
-- Result: at most 200 rows, the worst first, then the oldest; `topic` NULL = the condition is not about a topic.
-- Errors: none.
-- Locks: none.
-- Called by: the web, each second.
CREATE OR REPLACE FUNCTION messages.open_conditions()
RETURNS TABLE (kind text, level text, topic text, since timestamptz, what text, fix text)
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT o.kind, messages.condition_level(o.kind) AS level, o.topic, o.since, o.what, o.fix
  FROM (
    SELECT c.kind, nullif(c.topic, '') AS topic, c.since, c.what, c.fix FROM messages.condition AS c
    UNION ALL
    SELECT 'breaker', b.topic, b.since, b.what, b.fix FROM messages.open_breakers() AS b
  ) AS o
  ORDER BY level, o.since, o.kind, o.topic
  LIMIT 200
$$;
