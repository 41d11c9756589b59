-- Returns the incidents, each as one row from its begin to its end: the problems of `messages.open_conditions` with
-- those that are silenced, and the groups of dead messages that sinks were told of. While many messages of a topic die,
-- or its breaker is open, its dead messages are part of that incident and have no row of their own.
--
-- Arguments: `p_topics`: as for `messages.stats`; what is about no topic is returned for every `p_topics`. `p_over`:
-- also those that ended in the last week. `p_limit`: how many conditions, and how many groups, at most.
-- Result: the worst first, in the order of `messages.open_conditions`, those that are over last. `state`: `firing`,
-- `silenced`, or `over` since `ended_at`. `began_at`, `count`: as of `messages.open_conditions`; of a group, its first
-- death and how many died. A group is over when all of it was redriven, at once (if it has at most 10,000 messages), or
-- when none died for the `group_interval` of its sinks. `what`: a text for people, of a group the error. `sinks`: which
-- were told, at last at `notified_at`; `unsent`: how many dead messages they were not told of yet.
-- Errors: none.
-- Locks: none.
-- Cost: a few rows; for a group of which the latest message was redriven, up to 10,000 of its messages.
-- Called by: operators, and the web server.
CREATE OR REPLACE FUNCTION messages.incidents(
  p_topics text[] DEFAULT '{*}', p_over boolean DEFAULT false, p_limit integer DEFAULT 200
)
RETURNS TABLE (
  kind text, severity text, topic text, result text, error_fingerprint text, state text, began_at timestamptz,
  ended_at timestamptz, count bigint, what text, fix text, sinks text[], unsent bigint, notified_at timestamptz,
  first_message_id bigint
)
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  WITH told AS MATERIALIZED (
    SELECT i.kind, i.topic, i.result, i.error_fingerprint, bool_and(i.state = 'over') AS is_over,
           min(i.first_at) AS first_at, max(i.last_at) AS last_at, max(i.count) AS count, max(i.pending) AS pending,
           (array_agg(i.sample_error ORDER BY i.last_at DESC))[1] AS error,
           array_agg(i.sink ORDER BY i.sink) AS sinks, max(i.notified_at) AS notified_at,
           min(i.first_message_id) AS first_message_id, max(i.last_message_id) AS last_message_id
    FROM messages.alert_incident AS i
    WHERE i.topic IS NULL OR i.topic = ANY (p_topics)
      OR i.topic ~ ANY ((SELECT messages.topic_regexps(p_topics))::text[])
    GROUP BY i.kind, i.topic, i.result, i.error_fingerprint
  ), open AS MATERIALIZED (
    SELECT o.* FROM messages.open_conditions(p_topics, p_limit, true) AS o
  ), condition AS (
    SELECT o.kind, o.topic, o.since, NULL::timestamptz AS ended_at, o.count, o.what, o.fix FROM open AS o
    UNION ALL
    (SELECT c.kind, nullif(c.topic, ''), c.since, c.ended_at, c.count, c.what, c.fix
     FROM messages.condition AS c
     WHERE p_over AND c.ended_at IS NOT NULL
       AND (c.topic = '' OR c.topic = ANY (p_topics)
         OR c.topic ~ ANY ((SELECT messages.topic_regexps(p_topics))::text[]))
     ORDER BY c.ended_at DESC LIMIT p_limit)
  ), incident AS (
    SELECT c.kind, c.topic, NULL AS result, NULL AS error_fingerprint, c.since AS began_at, c.ended_at, c.count, c.what,
           c.fix, t.sinks, 0 AS unsent, t.notified_at, NULL::bigint AS first_message_id
    FROM condition AS c
    LEFT JOIN told AS t
      ON t.kind = c.kind AND t.topic IS NOT DISTINCT FROM c.topic
      -- Each condition has what they were told of it, and not of an earlier or a later one.
      AND t.last_at >= c.since AND t.first_at <= coalesce(c.ended_at, 'infinity')
    UNION ALL
    (SELECT t.kind, t.topic, t.result, t.error_fingerprint, t.first_at, e.at, t.count, t.error, NULL, t.sinks,
            t.pending, t.notified_at, t.first_message_id
     FROM told AS t
     CROSS JOIN LATERAL (
       SELECT CASE WHEN t.is_over THEN t.last_at ELSE messages.redriven_at(
         t.topic, t.result, t.error_fingerprint, t.first_at, t.last_message_id) END AS at) AS e
     WHERE t.kind = 'dead_message' AND (p_over OR e.at IS NULL)
       AND (e.at IS NOT NULL OR (t.topic = ANY (ARRAY(
         SELECT x.topic FROM messages.explained_conditions() AS x WHERE x.kind = t.kind))) IS NOT TRUE)
     ORDER BY t.last_at DESC LIMIT p_limit)
  )
  SELECT i.kind, messages.alert_severity(i.kind) AS severity, i.topic, i.result, i.error_fingerprint, s.state,
         i.began_at, i.ended_at, i.count, i.what, i.fix, coalesce(i.sinks, '{}'), i.unsent::bigint, i.notified_at,
         i.first_message_id
  FROM incident AS i
  CROSS JOIN LATERAL (SELECT CASE
    WHEN i.ended_at IS NOT NULL THEN 'over'
    WHEN messages.silence_of(i.kind, i.topic, i.error_fingerprint) IS NOT NULL THEN 'silenced'
    ELSE 'firing'
  END AS state) AS s
  ORDER BY array_position(ARRAY['firing', 'silenced', 'over'], s.state), i.ended_at DESC, i.kind <> 'workers_down',
           severity, i.began_at, i.kind, i.topic
$$;
