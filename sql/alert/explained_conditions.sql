-- List the conditions that a wider problem explains, which is reported instead: while no worker is alive, what waits in
-- any topic; while the breaker of a topic is open, what waits there and what died there.
-- Called by: conditions, open_conditions, update_conditions. Locks: nothing. Result: a kind of condition and its topic,
-- NULL = every topic.
CREATE OR REPLACE FUNCTION messages.explained_conditions()
RETURNS TABLE (kind text, topic text)
LANGUAGE sql
STABLE
AS $$
  SELECT k.kind, NULL
  FROM unnest(ARRAY['no_worker', 'backlog']) AS k (kind)
  WHERE NOT EXISTS (SELECT FROM messages.worker_state AS w WHERE w.alive)
    AND EXISTS (SELECT FROM messages.workers_down())
  UNION ALL
  SELECT k.kind, b.topic
  FROM messages.open_breakers() AS b
  CROSS JOIN unnest(ARRAY['no_worker', 'backlog', 'dead_rate']) AS k (kind)
$$;
