-- Walk over the topics: the first topic after p_after that is wanted (NULL = all) and may have ready messages.
-- Called by: messages.claim, messages.next_due. Locks: nothing. Result: NULL at the end of the topics.
-- A loose scan of both ready indexes: it reads one entry per topic, however many messages or wanted topics there are. A
-- topic with a low-water mark is returned without a check: looking for its first entry would walk over dead ones.
-- p_marks false: check. p_patterns: patterns; the topics of those that are wanted as well are wanted, except for the
-- topics of a more specific one that is not. p_except: topics, and patterns whose topics, are not wanted all the same.
CREATE OR REPLACE FUNCTION messages.next_topic(
  p_wanted text[], p_after text, p_marks boolean DEFAULT true, p_patterns text[] DEFAULT NULL,
  p_except text[] DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  -- chr(1) sorts before, '~' after every character of a topic.
  v_from text := p_after || chr(1);
  v_next text;
BEGIN
  IF cardinality(p_wanted) = 1 AND p_patterns IS NULL AND p_wanted[1] <= p_after COLLATE "C" THEN
    RETURN NULL;
  END IF;
  WHILE v_from IS NOT NULL LOOP
    SELECT least(
      w.topic COLLATE "C",
      (SELECT m.topic FROM messages.message AS m
       WHERE m.claim_id IS NULL AND m.channel IS NULL
         AND m.topic >= v_from COLLATE "C" AND m.topic < coalesce(w.topic, '~') COLLATE "C"
       ORDER BY m.topic LIMIT 1),
      (SELECT m.topic FROM messages.message AS m
       WHERE m.claim_id IS NULL AND m.channel IS NOT NULL
         AND m.topic >= v_from COLLATE "C" AND m.topic < coalesce(w.topic, '~') COLLATE "C"
       ORDER BY m.topic LIMIT 1))
    INTO v_next
    FROM (VALUES (true)) AS one
    LEFT JOIN LATERAL (
      SELECT l.topic FROM messages.low_water AS l
      WHERE l.topic >= v_from COLLATE "C" AND l.at IS NOT NULL AND p_marks
      ORDER BY l.topic LIMIT 1) AS w ON true;

    IF v_next IS NULL OR p_wanted IS NULL OR v_next = ANY (p_wanted) THEN
      RETURN v_next;
    END IF;
    IF p_patterns IS NULL THEN
      SELECT min(w.topic COLLATE "C") INTO v_from
      FROM unnest(p_wanted) AS w (topic)
      WHERE w.topic COLLATE "C" > v_next COLLATE "C";
    ELSIF messages.is_wanted_by_pattern(p_wanted, v_next, p_patterns, p_except) THEN
      RETURN v_next;
    ELSE
      v_from := messages.skip_topics(p_wanted, v_next, p_except);
    END IF;
  END LOOP;
  RETURN NULL;
END
$$;

-- Returns whether a topic that is not wanted by its name is wanted because of a pattern.
-- Called by: next_topic; the arguments are described there. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.is_wanted_by_pattern(
  p_wanted text[], p_topic text, p_patterns text[], p_except text[]
)
RETURNS boolean
LANGUAGE plpgsql
IMMUTABLE
AS $$
BEGIN
  RETURN (messages.find_pattern(p_patterns, p_topic) = ANY (p_wanted)) IS TRUE
    AND (p_topic = ANY (p_except)) IS NOT TRUE
    AND (messages.patterns_of(p_topic) && p_except) IS NOT TRUE;
END
$$;

-- Returns the place behind a topic that is not wanted at which the next wanted one may be.
-- Called by: next_topic; the arguments are described there. Locks: nothing. Result: NULL = no other topic is wanted.
-- Of thousands of topics that no pattern wants it reads none: what has more levels than a pattern with one star is
-- skipped together ('/' sorts right behind '.'), and so is all that a pattern of p_except with two stars matches.
CREATE OR REPLACE FUNCTION messages.skip_topics(p_wanted text[], p_topic text, p_except text[])
RETURNS text
LANGUAGE plpgsql
IMMUTABLE
AS $$
DECLARE
  v_behind text := p_topic || chr(1);
  v_skip   text;
BEGIN
  FOREACH v_skip IN ARRAY messages.patterns_of(p_topic) LOOP
    IF right(v_skip, 2) = '**' AND v_skip = ANY (p_except) THEN
      v_behind := left(v_skip, -3) || '/';
    END IF;
  END LOOP;
  IF v_behind = '/' THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT min(
      CASE
        WHEN b.begin COLLATE "C" >= v_behind COLLATE "C" THEN b.begin
        WHEN right(w.topic, 1) <> '*' OR NOT starts_with(v_behind, b.begin) THEN NULL
        WHEN right(w.topic, 2) = '**' OR strpos(substr(v_behind, length(b.begin) + 1), '.') = 0 THEN v_behind
        ELSE b.begin || split_part(substr(v_behind, length(b.begin) + 1), '.', 1) || '/'
      END COLLATE "C")
    FROM unnest(p_wanted) AS w (topic)
    CROSS JOIN LATERAL (SELECT rtrim(w.topic, '*') AS begin) AS b);
END
$$;
