-- List topics that have live messages, dead ones of the last day, or a policy, in the order of their names: page by page, each of them.
-- Called by: the web server. Locks: nothing. Cost: the claimed messages, the deaths of a day, and an entry of an index per topic of the page.
-- p_after: only those after this name. p_topics: which are wanted, by names, or beginnings that end with *.
-- Result: at most p_limit topics; fewer = there are no more.
CREATE OR REPLACE FUNCTION messages.list_topics(p_after text DEFAULT '', p_limit integer DEFAULT 1000, p_topics text[] DEFAULT '{*}')
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
    SELECT c.topic FROM messages.dead_count AS c WHERE c.died_at >= date_bin('10 minutes', messages.now() - interval '1 day', 'epoch')
    UNION
    SELECT t.topic FROM messages.topic AS t WHERE t.topic <> '*'
  ) AS k
  WHERE k.topic > p_after AND k.topic LIKE ANY ((SELECT messages.like_patterns(p_topics))::text[])
  ORDER BY k.topic
  LIMIT p_limit
$$;
