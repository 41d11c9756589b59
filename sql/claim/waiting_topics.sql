-- List topics that may have waiting messages, in the order of their names.
-- Called by: tick_topics, conditions, list_topics, stats. Locks: nothing. Cost: an entry of an index for each topic
-- that is listed and each wanted name. p_after: only those after this name. p_topics: which are wanted: names,
-- patterns, and beginnings that end with * (see topic_matches).
-- Result: at most p_limit topics.
CREATE OR REPLACE FUNCTION messages.waiting_topics(p_after text, p_limit integer, p_topics text[] DEFAULT '{*}')
RETURNS text[]
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  c_pattern CONSTANT text := '(^[*]|[.][*]?)[*]$';
  v_patterns text[] := ARRAY(SELECT t.topic FROM unnest(p_topics) AS t (topic) WHERE t.topic ~ c_pattern);
  v_begins text[] := ARRAY(
    SELECT t.topic FROM unnest(p_topics) AS t (topic)
    WHERE right(t.topic, 1) = '*' AND t.topic !~ c_pattern);
  -- A topic may be no longer than its beginning.
  v_names  text[] := v_patterns || ARRAY(
    SELECT DISTINCT rtrim(t.topic, '*') FROM unnest(p_topics) AS t (topic) WHERE t.topic !~ c_pattern);
  v_found  text[] := ARRAY[]::text[];
  v_begin  text;
  v_topic  text;
  v_count  integer;
BEGIN
  FOR v_begin IN SELECT DISTINCT left(b.topic, -1) FROM unnest(v_begins) AS b (topic) LOOP
    v_topic := greatest(p_after COLLATE "C", v_begin COLLATE "C");
    v_count := 0;
    WHILE v_count < p_limit LOOP
      v_topic := messages.next_topic(NULL, v_topic);
      EXIT WHEN v_topic IS NULL OR NOT starts_with(v_topic, v_begin);
      v_found := v_found || v_topic;
      v_count := v_count + 1;
    END LOOP;
  END LOOP;

  v_patterns := messages.topic_patterns(v_patterns);
  v_topic := messages.next_topic(v_names, p_after, true, v_patterns);
  v_count := 0;
  WHILE v_topic IS NOT NULL AND v_count < p_limit LOOP
    v_found := v_found || v_topic;
    v_count := v_count + 1;
    v_topic := messages.next_topic(v_names, v_topic, true, v_patterns);
  END LOOP;
  RETURN ARRAY(SELECT DISTINCT f.topic COLLATE "C" FROM unnest(v_found) AS f (topic) ORDER BY 1 LIMIT p_limit);
END
$$;
