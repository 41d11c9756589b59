-- Returns what became of workflows: the one definition of their states, and the one count of their messages.
--
-- Arguments: `p_ids`: their first messages. `p_topics`, `p_limit`: as for `messages.workflow_messages`, which has the
-- messages that are counted.
-- Result: one row per id, the highest first.
--
-- | column | meaning |
-- |---|---|
-- | `state` | `held`: a message waits for one that did not succeed; else `running`, until all have ended |
-- | | then `failed`: some are dead; `cancelled`: some were cancelled; `finished` |
-- | `topic` | that of its first message of which something is kept |
-- | `total`, `live` | how many messages it has, and how many of them have not ended |
-- | `held` | how many of those wait for one that did not succeed |
-- | `dead`, `cancelled` | how many died, without those that were redriven, and were cancelled |
-- | `created_at`, `last_ended_at` | when its first message was published, and when the latest of those that ended did |
-- | `is_whole` | false: it may have more messages: the latest were counted |
-- Errors: none.
-- Locks: none.
-- Cost: as `messages.workflow_messages`, for each workflow.
-- Called by: GET /v1/workflows, the dashboard.
CREATE OR REPLACE FUNCTION messages.workflow_state(
  p_ids bigint[], p_topics text[] DEFAULT '{*}', p_limit integer DEFAULT 200
)
RETURNS TABLE (
  id bigint, state text, topic text, total bigint, live bigint, held bigint, dead bigint, cancelled bigint,
  created_at timestamptz, last_ended_at timestamptz, is_whole boolean
)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  SELECT w.id,
         CASE
           WHEN c.held > 0 THEN 'held'
           WHEN c.live > 0 THEN 'running'
           WHEN c.dead > 0 THEN 'failed'
           WHEN c.cancelled > 0 THEN 'cancelled'
           ELSE 'finished'
         END,
         c.*
  FROM unnest(p_ids) AS w (id)
  CROSS JOIN LATERAL (
    SELECT (array_agg(n.topic ORDER BY n.place) FILTER (WHERE n.topic IS NOT NULL))[1], count(*) AS total,
           count(*) FILTER (WHERE n.topic IS NOT NULL AND n.archived_at IS NULL) AS live,
           count(*) FILTER (WHERE n.is_held) AS held,
           count(*) FILTER (WHERE n.archived_at IS NOT NULL AND n.state NOT IN ('success', 'cancelled')) AS dead,
           count(*) FILTER (WHERE n.state = 'cancelled') AS cancelled,
           min(n.created_at), max(n.archived_at), coalesce(bool_and(n.is_whole), true)
    FROM messages.workflow_messages(w.id, p_topics, p_limit) WITH ORDINALITY AS n (
      id, after, workflow_id, topic, state, attempts, created_at, archived_at, batch_id, is_held, is_whole, place)
  ) AS c
  ORDER BY w.id DESC;
END
$$;
