-- Queue counts by topic, without ever counting a big table: the counts of a topic stop at p_bound (p_bound then means "at least").
-- Of the messages with a channel it checks p_bound of each topic. handled: as is_handled says. Called by: pgrouse stats. Locks: nothing.
-- Result: one row per topic that has live messages, dead ones of the last day, or a policy.
CREATE OR REPLACE FUNCTION messages.stats(p_bound integer DEFAULT 10000)
RETURNS TABLE (
  topic text, ready bigint, delayed bigint, running bigint, dead_last_day bigint, oldest_ready_s double precision, handled boolean
)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_now timestamptz := messages.now();
BEGIN
  RETURN QUERY
  WITH RECURSIVE standing (topic) AS (
    SELECT messages.next_topic(NULL, '')
    UNION ALL
    SELECT messages.next_topic(NULL, s.topic) FROM standing AS s WHERE s.topic IS NOT NULL
  ), dead AS (
    -- Topic by topic, so that one where many die takes nothing from the count of another.
    SELECT t.topic, bounded.count
    FROM messages.dead_topics() AS t (topic)
    CROSS JOIN LATERAL (
      SELECT count(*) AS count
      FROM (
        SELECT FROM messages.message_archive AS a
        WHERE a.result NOT IN ('success', 'cancelled') AND a.topic = t.topic COLLATE "C" AND a.archived_at > v_now - interval '1 day'
        LIMIT p_bound) AS a) AS bounded
    WHERE bounded.count > 0
  ), running AS (
    SELECT m.topic, count(*) AS count FROM messages.message AS m WHERE m.claim_id IS NOT NULL GROUP BY m.topic
  ), known AS (
    SELECT s.topic FROM standing AS s WHERE s.topic IS NOT NULL
    UNION SELECT d.topic FROM dead AS d
    UNION SELECT r.topic FROM running AS r
    UNION SELECT t.topic FROM messages.topic AS t WHERE t.topic <> '*'
  )
  SELECT
    k.topic,
    least(waiting.ready, p_bound),
    least(waiting.delayed, p_bound),
    coalesce(r.count, 0),
    coalesce(d.count, 0),
    extract(epoch FROM v_now - waiting.oldest)::double precision,
    messages.is_handled(k.topic)
  FROM known AS k
  CROSS JOIN LATERAL (
    SELECT sum(place.ready)::bigint AS ready, sum(place.delayed)::bigint AS delayed, min(place.oldest) AS oldest
    FROM (
      -- Priority by priority: in the index only then do the ready stand before the delayed.
      SELECT
        (SELECT count(*) FROM (
           SELECT FROM messages.message AS m
           WHERE m.topic = k.topic AND m.priority = p.priority AND m.claim_id IS NULL AND m.channel IS NULL
             AND m.available_at <= v_now LIMIT p_bound) AS bounded) AS ready,
        (SELECT count(*) FROM (
           SELECT FROM messages.message AS m
           WHERE m.topic = k.topic AND m.priority = p.priority AND m.claim_id IS NULL AND m.channel IS NULL
             AND m.available_at > v_now LIMIT p_bound) AS bounded) AS delayed,
        (SELECT min(m.available_at) FROM messages.message AS m
         WHERE m.topic = k.topic AND m.priority = p.priority AND m.claim_id IS NULL AND m.channel IS NULL
           AND m.available_at <= v_now) AS oldest
      FROM generate_series(0, 9) AS p (priority)
      UNION ALL
      SELECT count(*) FILTER (WHERE c.available_at <= v_now), count(*) FILTER (WHERE c.available_at > v_now),
             min(c.available_at) FILTER (WHERE c.available_at <= v_now)
      FROM (
        SELECT m.available_at FROM messages.message AS m
        WHERE m.topic = k.topic AND m.claim_id IS NULL AND m.channel IS NOT NULL LIMIT p_bound) AS c
    ) AS place
  ) AS waiting
  LEFT JOIN running AS r ON r.topic = k.topic
  LEFT JOIN dead AS d ON d.topic = k.topic
  ORDER BY k.topic;
END
$$;
