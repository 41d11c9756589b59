-- Returns the dead messages of the last `p_since`, grouped by topic, result and fingerprint of their error. It examines
-- the latest `p_bound` messages of each topic; if there are more, `at_least` is true and the numbers of that topic mean
-- "at least".
--
-- Result: `redriven`: how many of `count` were redriven since. `sample_id`, `sample_error`: of the latest message.
-- `trend`: how many died in each of `p_bars` equal parts of the time, the oldest first. `silence_id`: which silence
-- applies to the alerts of the group; NULL = none.
-- Errors: 22023 for an argument that is out of its range: `p_since` 1 s to 3650 days, `p_bars` 1 to 200, `p_bound` 1 to
-- 100000.
-- Locks: none.
-- Called by: `pgrouse dead group`.
CREATE OR REPLACE FUNCTION messages.dead_groups(
  p_since interval DEFAULT '7 days',
  p_topic text     DEFAULT NULL,
  p_result text    DEFAULT NULL,
  p_bars  integer  DEFAULT 24,
  p_bound integer  DEFAULT 2000
)
RETURNS TABLE (
  topic text, result text, error_fingerprint text, count bigint, redriven bigint, first_seen timestamptz,
  last_seen timestamptz,
  sample_id bigint, sample_error text, trend bigint[], at_least boolean, silence_id bigint
)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_now  timestamptz := messages.now();
  v_from timestamptz;
BEGIN
  IF p_since IS NULL OR p_since NOT BETWEEN '1 s' AND '3650 days' THEN
    RAISE EXCEPTION 'since of dead groups is %', coalesce(p_since::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use an interval from 1 s to 3650 days';
  END IF;
  IF p_bars IS NULL OR p_bars NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'bars of dead groups are %', coalesce(p_bars::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 200';
  END IF;
  IF p_bound IS NULL OR p_bound NOT BETWEEN 1 AND 100000 THEN
    RAISE EXCEPTION 'bound of dead groups is %', coalesce(p_bound::text, 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 100000';
  END IF;
  v_from := v_now - p_since;

  RETURN QUERY
  SELECT
    g.topic, g.result, g.error_fingerprint, g.count, g.redriven, g.first_seen, g.last_seen, g.sample_id,
    (
      SELECT messages.cut_error(a.error, 1000) FROM messages.message_archive AS a
      WHERE a.id = g.sample_id AND a.archived_at = g.last_seen),
    (SELECT array_agg(coalesce(b.count, 0) ORDER BY n.bar)
     FROM generate_series(1, p_bars) AS n (bar)
     LEFT JOIN unnest(g.bars, g.counts) AS b (bar, count) ON b.bar = n.bar),
    g.at_least,
    messages.silence_of('dead_message', g.topic, g.error_fingerprint)
  FROM (
    SELECT
      p.topic, p.result, p.error_fingerprint, sum(p.count)::bigint AS count, sum(p.redriven)::bigint AS redriven,
      min(p.first_seen) AS first_seen, max(p.last_seen) AS last_seen,
      (array_agg(p.sample_id ORDER BY p.last_seen DESC, p.sample_id DESC))[1] AS sample_id,
      array_agg(p.bar) AS bars, array_agg(p.count) AS counts, bool_or(p.at_least) AS at_least
    FROM (
    -- Bar by bar first: a trend of all rows would be counted once for each of its bars.
    SELECT
      d.topic, d.result, d.error_fingerprint, d.bar, count(*) AS count, count(d.redriven_as) AS redriven,
      min(d.archived_at) AS first_seen, max(d.archived_at) AS last_seen,
      (array_agg(d.id ORDER BY d.archived_at DESC, d.id DESC))[1] AS sample_id,
      bool_or(d.looked_at = p_bound) AS at_least
    FROM (
      SELECT p_topic WHERE p_topic IS NOT NULL
      UNION ALL
      SELECT t.topic FROM messages.dead_topics() AS t (topic) WHERE p_topic IS NULL
    ) AS t (topic)
    CROSS JOIN LATERAL (
      SELECT l.*, count(*) OVER () AS looked_at,
             (SELECT r.message_id FROM messages.redrive_log AS r WHERE r.archived_id = l.id) AS redriven_as,
             least(p_bars, width_bucket(
               extract(epoch FROM l.archived_at)::double precision, extract(epoch FROM v_from)::double precision,
               extract(epoch FROM v_now)::double precision, p_bars)) AS bar
      FROM (
        SELECT a.id, a.topic, a.result, a.error_fingerprint, a.archived_at
        FROM messages.message_archive AS a
        WHERE a.result NOT IN ('success', 'cancelled') AND a.topic = t.topic COLLATE "C" AND a.archived_at >= v_from
        ORDER BY a.archived_at DESC, a.id DESC
        LIMIT p_bound
      ) AS l
    ) AS d
    WHERE p_result IS NULL OR d.result = p_result
    GROUP BY d.topic, d.result, d.error_fingerprint, d.bar
    ) AS p
    GROUP BY p.topic, p.result, p.error_fingerprint
  ) AS g
  ORDER BY g.last_seen DESC, g.topic, g.result;
END
$$;
