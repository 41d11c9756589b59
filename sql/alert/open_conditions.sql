-- Returns the problems that are open, as every front end shows and counts them: the conditions that the last tick
-- found, and what is known at once, without a tick: the breakers that are open, whether too few workers are alive, and
-- that dead messages were redriven. Those that a wider problem explains (`messages.conditions`), or that are silenced,
-- are left out. `messages.alert_severity` says the severity.
--
-- Arguments: `p_topics`: as for `messages.stats`; what is about no topic is returned for every `p_topics`.
-- `p_silenced`: also those that are silenced.
-- Result: at most `p_limit` rows: `workers_down` first, then the most severe, then the oldest; `topic` NULL = the
-- condition is not about a topic. `count`: how many messages it is about, as the last tick counted them: those that are
-- ready (from 1000 on an estimate, as `messages.stats` makes it), or that died within an hour and were not redriven;
-- NULL = it is not about messages, or they were not counted yet.
-- Errors: none.
-- Locks: none.
-- Cost: a few rows. If no worker is alive and none has died, also entries of an index for up to 100 topics.
-- Called by: the web, each second; the metrics, `pgrouse top`, `pgrouse stats`, incidents.
CREATE OR REPLACE FUNCTION messages.open_conditions(
  p_topics text[] DEFAULT '{*}', p_limit integer DEFAULT 200, p_silenced boolean DEFAULT false
)
RETURNS TABLE (kind text, severity text, topic text, since timestamptz, count bigint, what text, fix text)
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  WITH explained AS MATERIALIZED (
    SELECT e.* FROM messages.explained_conditions() AS e
  )
  SELECT o.kind, messages.alert_severity(o.kind) AS severity, o.topic, o.since, k.count, o.what, o.fix
  FROM (
    SELECT 'workers_down' AS kind, NULL::text AS topic, d.since, d.what, d.fix FROM messages.workers_down() AS d
    UNION ALL
    SELECT 'breaker', b.topic, b.since, b.what, b.fix FROM messages.open_breakers() AS b
    UNION ALL
    SELECT c.kind, nullif(c.topic, ''), c.since, c.what, c.fix FROM messages.condition AS c
    WHERE c.ended_at IS NULL AND c.kind NOT IN ('workers_down', 'breaker')
      AND (c.kind <> 'dead_rate' OR c.topic = ANY (ARRAY(SELECT d.topic FROM messages.dead_rates() AS d)))
      AND NOT EXISTS (
        SELECT FROM explained AS e WHERE e.kind = c.kind AND coalesce(e.topic, c.topic) = c.topic)
  ) AS o
  LEFT JOIN messages.condition AS k ON k.kind = o.kind AND k.topic = coalesce(o.topic, '') AND k.ended_at IS NULL
  WHERE (o.topic IS NULL OR o.topic = ANY (p_topics)
      OR o.topic ~ ANY ((SELECT messages.topic_regexps(p_topics))::text[]))
    AND (p_silenced OR messages.silence_of(o.kind, o.topic, NULL) IS NULL)
  ORDER BY o.kind <> 'workers_down', severity, o.since, o.kind, o.topic
  LIMIT p_limit
$$;
