-- Returns the contents of the queue, by topic, without reading a large table to its end. One row per topic that has
-- live messages, dead messages of the last day, or a policy, or that a worker of the registry handles by its name: a
-- topic whose messages run at once has its row all the time.
--
-- Arguments: `p_topics`: names of topics, [patterns](#patterns-of-topics), or beginnings that end with `*`. Of more
-- than `p_limit` topics it returns those that have a policy, a worker or running messages, and then those with the most
-- messages. If it returns `p_limit` rows there may be more topics: `messages.list_topics` lists all of them.
-- Result: `delayed` are all that are due later: also those that are `blocked`, `retrying` or `waiting`. `ready` and
-- `delayed` are exact below `p_bound`. From `p_bound` on the number is an estimate, from a sample of 1,000 pages of
-- `messages.message`: 200 runs of five pages at equal distances. A topic whose messages were
-- published at once lies on few of the runs. One that lies on fewer than 20, and cannot be known to have many more, is
-- counted instead, up to ten times `p_bound`; where there are many such topics, up to fewer, so that together at most
-- 50 times `p_bound` messages are counted. A table of up to 1,000 pages is read as a whole, and the estimate is then
-- exact too.
--
-- `running` is exact, and so is `dead_last_day`, whatever the number: it rises with each message that dies, and falls
-- with each that is redriven. It is the sum of `messages.dead_count` since the beginning of the ten minutes in which
-- the last day began. Messages that were erased or purged since are included. `handled`: a worker handles the topic, by
-- the rule of `messages.unhandled_topics`.
-- Errors: none.
-- Locks: none.
-- Called by: `pgrouse stats`, `pgrouse top`, the web, the metrics, all with the default of `p_bound`.
-- Inside: Cost: a sample of the pages, and of each topic p_bound entries of the ready indexes, and of the delayed; of
-- one with many more, none. Of topics that the sample hardly saw up to ten times as many are counted: as many as 50 *
-- p_bound divided by their number. Of the topics without a policy, a worker or running messages it looks at those that
-- the sample saw, that lost messages, and p_limit others.
CREATE OR REPLACE FUNCTION messages.stats(
  p_bound integer DEFAULT 1000, p_topics text[] DEFAULT '{*}', p_limit integer DEFAULT 1000
)
RETURNS TABLE (
  topic text, ready bigint, delayed bigint, running bigint, dead_last_day bigint, oldest_ready_s double precision,
  handled boolean
)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_now  timestamptz := messages.now();
  v_like text[] := messages.topic_regexps(p_topics);
BEGIN
  RETURN QUERY
  WITH estimate AS MATERIALIZED (
    SELECT e.* FROM messages.estimate_waiting() AS e
  ), dead AS MATERIALIZED (
    SELECT c.topic, sum(c.count - c.redriven)::bigint AS count
    FROM messages.dead_count AS c
    WHERE c.died_at >= date_bin('10 minutes', v_now - interval '1 day', 'epoch')
    GROUP BY c.topic
  ), running AS MATERIALIZED (
    SELECT m.topic, count(*) AS count FROM messages.message AS m WHERE m.claim_id IS NOT NULL GROUP BY m.topic
  ), handled AS MATERIALIZED (
    SELECT DISTINCT t.topic
    FROM messages.worker_state AS w
    CROSS JOIN unnest(w.topics) AS t (topic)
    WHERE w.handles AND (t.topic = ANY (p_topics) OR t.topic ~ ANY (v_like) OR right(t.topic, 1) = '*')
  ), known AS MATERIALIZED (
    SELECT k.topic
    FROM (
      SELECT t.topic, true AS is_first, 0::bigint AS count FROM messages.topic AS t WHERE right(t.topic, 1) <> '*'
      UNION ALL SELECT r.topic, true, 0 FROM running AS r
      UNION ALL SELECT w.topic, true, 0
      FROM unnest(messages.waiting_topics('', p_limit, ARRAY(SELECT h.topic FROM handled AS h))) AS w (topic)
      UNION ALL SELECT h.topic, false, 0 FROM handled AS h WHERE right(h.topic, 1) <> '*'
      UNION ALL SELECT d.topic, false, d.count FROM dead AS d
      UNION ALL SELECT e.topic, false, e.ready + e.delayed FROM estimate AS e
      UNION ALL SELECT w.topic, false, 0 FROM unnest(messages.waiting_topics('', p_limit, p_topics)) AS w (topic)
    ) AS k
    WHERE k.topic = ANY (p_topics) OR k.topic ~ ANY (v_like)
    GROUP BY k.topic
    ORDER BY bool_or(k.is_first) DESC, sum(k.count) DESC, k.topic
    LIMIT p_limit
  ), counted AS (
    SELECT greatest(p_bound, least(10 * p_bound::bigint, 50 * p_bound::bigint / greatest(1, count(*)))) AS most
    FROM known AS k LEFT JOIN estimate AS e ON e.topic = k.topic
    WHERE NOT messages.estimate_suffices(e.ready, e.ready_runs, 10 * p_bound::bigint)
       OR e.delayed > 0 AND NOT messages.estimate_suffices(e.delayed, e.delayed_runs, 10 * p_bound::bigint)
  )
  SELECT
    k.topic,
    messages.count_or_estimate(
      k.topic, '-infinity', v_now, CASE WHEN e.ready_runs >= 20 THEN p_bound ELSE c.most END, e.ready, e.ready_runs),
    messages.count_or_estimate(
      k.topic, v_now, 'infinity', CASE WHEN e.delayed_runs >= 20 THEN p_bound ELSE c.most END, e.delayed, e.delayed_runs
    ),
    coalesce(r.count, 0),
    coalesce(d.count, 0),
    extract(epoch FROM v_now - messages.oldest_ready(k.topic))::double precision,
    messages.is_handled(k.topic)
  FROM known AS k
  CROSS JOIN counted AS c
  LEFT JOIN estimate AS e ON e.topic = k.topic
  LEFT JOIN running AS r ON r.topic = k.topic
  LEFT JOIN dead AS d ON d.topic = k.topic
  ORDER BY k.topic;
END
$$;

-- Returns how many messages of a topic wait that are available after p_after, until p_until: counted up to p_bound,
-- beyond it estimated.
-- Called by: stats. p_estimate: the estimate, NULL = 0; p_runs: on how many runs of the sample the topic was seen.
-- Locks: nothing.
-- Result: from p_bound on it is an estimate, below it the count.
CREATE OR REPLACE FUNCTION messages.count_or_estimate(
  p_topic text, p_after timestamptz, p_until timestamptz, p_bound bigint, p_estimate bigint, p_runs bigint
)
RETURNS bigint
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_count bigint;
BEGIN
  IF messages.estimate_suffices(p_estimate, p_runs, p_bound) THEN
    RETURN p_estimate;
  END IF;
  SELECT count(*)
  INTO v_count
  FROM (
    -- Priority by priority: in the index only then do the ready stand before the delayed.
    SELECT FROM generate_series(0, 9) AS p (priority)
    CROSS JOIN LATERAL (
      SELECT FROM messages.message AS m
      WHERE m.topic = p_topic AND m.priority = p.priority AND m.claim_id IS NULL AND m.channel IS NULL
        AND m.available_at > p_after AND m.available_at <= p_until) AS m
    UNION ALL
    SELECT FROM messages.message AS m
    WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL AND m.available_at > p_after
      AND m.available_at <= p_until
    LIMIT p_bound) AS bounded;
  RETURN CASE WHEN v_count < p_bound THEN v_count ELSE greatest(p_bound, p_estimate) END;
END
$$;

-- Returns whether an estimate shows that a topic has more than p_bound messages, so that they need not be counted. The
-- fewer runs of the sample it was seen on, the larger the estimate has to be: on five of them 40 % is an error by
-- chance.
-- Called by: stats, count_or_estimate. Locks: nothing. Result: false for NULL.
CREATE OR REPLACE FUNCTION messages.estimate_suffices(p_estimate bigint, p_runs bigint, p_bound bigint)
RETURNS boolean
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT coalesce(p_runs >= 20 AND p_estimate >= 2 * p_bound OR p_runs >= 5 AND p_estimate >= 4 * p_bound, false)
$$;
