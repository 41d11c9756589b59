-- List what a wider problem explains, which is reported instead: while no worker is alive, what waits in any topic;
-- while the breaker of a topic is open, what waits there and what died there; while many messages of a topic die, each
-- group of them.
-- Called by: conditions, open_conditions, update_conditions, incidents, hold_explained. Locks: nothing. Result: a kind
-- of condition, or dead_message, its topic, NULL = every topic, and the kind of the wider problem, which has the same
-- topic.
CREATE OR REPLACE FUNCTION messages.explained_conditions()
RETURNS TABLE (kind text, topic text, cause text)
LANGUAGE sql
STABLE
AS $$
  SELECT k.kind, NULL, 'workers_down'
  FROM unnest(ARRAY['no_worker', 'backlog']) AS k (kind)
  WHERE NOT EXISTS (SELECT FROM messages.worker_state AS w WHERE w.alive)
    AND EXISTS (SELECT FROM messages.workers_down())
  UNION ALL
  SELECT k.kind, b.topic, 'breaker'
  FROM messages.open_breakers() AS b
  CROSS JOIN unnest(ARRAY['no_worker', 'backlog', 'dead_rate', 'dead_message']) AS k (kind)
  UNION ALL
  SELECT 'dead_message', c.topic, 'dead_rate'
  FROM messages.condition AS c
  WHERE c.kind = 'dead_rate' AND c.ended_at IS NULL
    AND c.topic = ANY (ARRAY(SELECT d.topic FROM messages.dead_rates() AS d))
$$;
