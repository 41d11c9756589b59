-- Returns the state of topics: the one definition of paused, stopped and full, and of the words for them.
--
-- Arguments: `p_topics`: names of topics; NULL = those that have a policy or a breaker, patterns with a policy, and
-- `*`, which stands for all: no other topic can be stopped on its own.
-- Result: one row per name, by name.
--
-- | column | meaning |
-- |---|---|
-- | `state` | `paused`; `breaker`, which is open or probing; `unhandled`; else `running` |
-- | `stopped` | it is paused, or stopped by its breaker: no claim gets its messages, or only a probe |
-- | `paused`, `paused_topic` | by its own pause, or else by that of the pattern or of `*` that `paused_topic` names |
-- | `resume_at` | the latest end of these pauses; NULL = until it is resumed |
-- | `breaker` | `closed`; `open` until `probe_at`, then `probing`; NULL = it has none |
-- | `handled` | a live worker handles it, by the rule of `messages.unhandled_topics` |
-- | `full` | `depth` has reached `max_depth`; the counter begins with the first publish under the limit |
-- Errors: none.
-- Locks: none.
-- Called by: `explain_stopped`, `open_breakers`, `examine_topics`, `examine_workers`, and everything that shows topics.
-- Inside: a topic needs no row in any table, so this is a function and no view.
CREATE OR REPLACE FUNCTION messages.topic_state(p_topics text[] DEFAULT NULL)
RETURNS TABLE (
  topic text, state text, stopped boolean, paused boolean, paused_topic text, paused_at timestamptz, paused_by text,
  paused_reason text,
  resume_at timestamptz, breaker text, breaker_changed_at timestamptz, probe_at timestamptz, breaker_reason text,
  handled boolean,
  "full" boolean, depth bigint, max_depth bigint
)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  WITH clock AS MATERIALIZED (
    SELECT messages.now() AS now
  ), pause AS MATERIALIZED (
    SELECT t.topic, t.paused_at, t.paused_by, t.paused_reason, coalesce(t.resume_at, 'infinity') AS resume_at
    FROM messages.topic AS t
    CROSS JOIN clock AS c
    WHERE messages.is_paused(t.paused_at, t.resume_at, c.now)
  ), known AS (
    SELECT k.topic,
           stop.topic AS paused_topic, stop.resume_at,
           CASE
             WHEN right(k.topic, 1) = '*' OR coalesce(t.breaker, d.breaker) IS NULL THEN NULL
             WHEN b.position = 'open' THEN CASE WHEN b.probe_at > c.now THEN 'open' ELSE 'probing' END
             ELSE 'closed'
           END AS breaker,
           b.changed_at, b.probe_at, b.reason,
           CASE WHEN right(k.topic, 1) <> '*' THEN messages.is_handled(k.topic) END AS handled,
           CASE WHEN right(k.topic, 1) <> '*' THEN nullif(coalesce(t.max_depth, d.max_depth), 0) END AS max_depth
    FROM unnest(
      coalesce(p_topics, ARRAY(SELECT t.topic FROM messages.topic AS t UNION SELECT b.topic FROM messages.breaker AS b))
    ) AS k (topic)
    CROSS JOIN clock AS c
    JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(k.topic)
    LEFT JOIN messages.topic AS t ON t.topic = k.topic
    CROSS JOIN LATERAL (
      SELECT (array_agg(p.topic ORDER BY array_position(n.names, p.topic)))[1] AS topic, max(p.resume_at) AS resume_at
      FROM (SELECT messages.names_of(k.topic) || '*'::text AS names) AS n
      JOIN pause AS p ON p.topic = ANY (n.names)) AS stop
    LEFT JOIN messages.breaker AS b ON b.topic = k.topic AND b.position = 'open'
  )
  SELECT
    k.topic,
    CASE
      WHEN k.paused_topic IS NOT NULL THEN 'paused'
      WHEN o.is_open THEN 'breaker'
      WHEN NOT k.handled THEN 'unhandled'
      ELSE 'running'
    END,
    k.paused_topic IS NOT NULL OR o.is_open,
    k.paused_topic IS NOT NULL, k.paused_topic, p.paused_at, p.paused_by, p.paused_reason,
    nullif(k.resume_at, 'infinity'),
    k.breaker,
    CASE WHEN o.is_open THEN k.changed_at END, CASE WHEN o.is_open THEN k.probe_at END,
    CASE WHEN o.is_open THEN k.reason END,
    k.handled, coalesce(n.depth >= k.max_depth, false), n.depth, k.max_depth
  FROM known AS k
  CROSS JOIN LATERAL (SELECT k.breaker IS NOT NULL AND k.breaker <> 'closed' AS is_open) AS o
  LEFT JOIN pause AS p ON p.topic = k.paused_topic
  LEFT JOIN LATERAL (
    SELECT d.rows + coalesce(
      (SELECT sum(c.change)::bigint FROM messages.depth_change AS c WHERE c.topic = d.topic), 0
    ) AS depth
    FROM messages.depth AS d
    WHERE d.topic = k.topic AND k.max_depth IS NOT NULL) AS n ON true
  ORDER BY k.topic COLLATE "C";
END
$$;
