-- Lists the topics that `messages.stats` returns, in the order of their bytes, page by page: the next page is what
-- comes after the last name of this one.
--
-- Arguments: `p_after`: list only what comes after this name. `p_topics`: as for `messages.stats`.
-- Result: at most `p_limit` topics; fewer mean that there are no more.
-- Errors: none.
-- Locks: none.
-- Cost: the claimed messages, the deaths of a day, and an entry of an index per topic of the page.
-- Called by: the web server.
CREATE OR REPLACE FUNCTION messages.list_topics(
  p_after text DEFAULT '', p_limit integer DEFAULT 1000, p_topics text[] DEFAULT '{*}'
)
RETURNS SETOF text
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT k.topic
  FROM (
    SELECT w.topic COLLATE "C" AS topic FROM unnest(messages.waiting_topics(p_after, p_limit, p_topics)) AS w (topic)
    UNION
    SELECT m.topic FROM messages.message AS m WHERE m.claim_id IS NOT NULL
    UNION
    SELECT c.topic FROM messages.dead_count AS c
    WHERE c.died_at >= date_bin('10 minutes', messages.now() - interval '1 day', 'epoch')
    UNION
    SELECT t.topic FROM messages.topic AS t WHERE right(t.topic, 1) <> '*'
    UNION
    SELECT t.topic COLLATE "C" FROM messages.worker_state AS w CROSS JOIN unnest(w.topics) AS t (topic)
    WHERE w.handles AND right(t.topic, 1) <> '*'
  ) AS k
  WHERE k.topic > p_after
    AND (k.topic = ANY (p_topics) OR k.topic ~ ANY ((SELECT messages.topic_regexps(p_topics))::text[]))
  ORDER BY k.topic
  LIMIT p_limit
$$;
