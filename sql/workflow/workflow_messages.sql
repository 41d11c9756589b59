-- Returns the messages of a workflow, in the order in which they were published: its first one, those that come after
-- it, and those that they come after too. A message that was redriven is replaced by the one that it became.
--
-- Arguments: `p_id`: the first message. `p_topics`: as for `messages.stats`: only messages of these; with `*`, also
-- those of which nothing is kept. `p_limit`: of one that has more, the latest; at most 10,000.
-- Result: `after`: the messages that it comes after, as they are here. `workflow_id`: the workflow that it belongs to;
-- NULL: it comes after none. `state`: as for `messages.workflow`; with `topic`, NULL if nothing of the message is kept.
-- `is_held`: it waits for a message that did not succeed. `is_whole`, the same in each row: false: the workflow may
-- have more.
-- Errors: none.
-- Locks: none.
-- Cost: a few index entries for each message; it follows at most ten times `p_limit` edges.
-- Called by: `workflow_state`, GET /v1/workflows, the dashboard.
CREATE OR REPLACE FUNCTION messages.workflow_messages(
  p_id bigint, p_topics text[] DEFAULT '{*}', p_limit integer DEFAULT 10000
)
RETURNS TABLE (
  id bigint, after bigint[], workflow_id bigint, topic text, state text, attempts integer, created_at timestamptz,
  archived_at timestamptz, batch_id bigint, is_held boolean, is_whole boolean
)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_limit   integer := greatest(0, least(p_limit, 10000));
  v_all     boolean := '*' = ANY (p_topics);
  v_regexps text[]  := messages.topic_regexps(p_topics);
BEGIN
  RETURN QUERY
  WITH RECURSIVE list AS (
    SELECT o.message_id, o.ids[greatest(1, o.width - o.room + 1):] AS ids, o.width > o.room AS is_cut
    FROM (
      SELECT k.message_id, k.ids, k.width,
             (10 * v_limit - sum(k.width) OVER (ORDER BY k.message_id DESC) + k.width)::integer AS room
      FROM (
        SELECT p.message_id, p.ids, cardinality(p.ids) AS width FROM messages.predecessor_list AS p
        WHERE p.workflow_id = p_id ORDER BY p.message_id DESC LIMIT v_limit) AS k) AS o
  ), became (original_id, id) AS (
    -- Each message as itself, and as what it was redriven as, again and again.
    SELECT n.id, n.id
    FROM (
      SELECT p_id AS id
      UNION SELECT l.message_id FROM list AS l
      UNION SELECT e.id FROM list AS l CROSS JOIN LATERAL unnest(l.ids) AS e (id)
      ORDER BY 1 DESC LIMIT v_limit) AS n
    UNION
    SELECT b.original_id, r.message_id
    FROM became AS b
    CROSS JOIN LATERAL (
      SELECT o.message_id FROM messages.redrive_log AS o WHERE o.archived_id = b.id OFFSET 0) AS r
  ), latest AS MATERIALIZED (
    SELECT b.original_id, b.id
    FROM became AS b
    LEFT JOIN LATERAL (
      SELECT o.message_id FROM messages.redrive_log AS o WHERE o.archived_id = b.id OFFSET 0) AS r ON true
    WHERE r.message_id IS NULL
  ), shown AS MATERIALIZED (
    SELECT p.id, p.place, s.*
    FROM (SELECT f.id, min(f.original_id) AS place FROM latest AS f GROUP BY f.id) AS p
    LEFT JOIN LATERAL (
      SELECT f.*
      FROM (
        SELECT m.topic::text AS topic,
               messages.live_state(m.id, m.topic, m.channel, m.claim_id, m.available_at, m.history,
                                   messages.now()) AS state,
               m.attempts::integer AS attempts, m.created_at::timestamptz AS created_at,
               NULL::timestamptz AS archived_at, m.batch_id,
               EXISTS (
                 SELECT FROM messages.dependency AS g WHERE g.successor_id = m.id AND g.failed_result IS NOT NULL
               ) AS is_held
        FROM messages.message AS m WHERE m.id = p.id
        UNION ALL
        SELECT a.topic, a.result, a.attempts, a.created_at, a.archived_at, a.batch_id, false
        FROM messages.message_archive AS a WHERE a.id = p.id) AS f
      LIMIT 1 OFFSET 0) AS s ON true
    WHERE v_all OR s.topic = ANY (p_topics) OR s.topic ~ ANY (v_regexps)
  ), after AS (
    SELECT o.message_id, array_agg(o.id ORDER BY o.place) AS ids
    FROM (
      SELECT l.message_id, f.id, min(e.place) AS place
      FROM list AS l
      CROSS JOIN LATERAL unnest(l.ids) WITH ORDINALITY AS e (id, place)
      JOIN latest AS f ON f.original_id = e.id
      JOIN shown AS n ON n.id = f.id
      GROUP BY l.message_id, f.id) AS o
    GROUP BY o.message_id
  )
  SELECT n.id, coalesce(a.ids, '{}'), w.workflow_id, n.topic, n.state, n.attempts, n.created_at, n.archived_at,
         n.batch_id, coalesce(n.is_held, false),
         (SELECT count(DISTINCT b.original_id) FROM became AS b) < v_limit
           AND NOT EXISTS (SELECT FROM list AS l WHERE l.is_cut)
  FROM shown AS n
  LEFT JOIN after AS a ON a.message_id = n.id
  LEFT JOIN LATERAL (
    SELECT p.workflow_id FROM messages.predecessor_list AS p WHERE p.message_id = n.id OFFSET 0) AS w ON true
  ORDER BY n.place;
END
$$;
