-- Walk over the topics: the first topic after p_after that is wanted (NULL = all) and may have ready messages.
-- Called by: messages.claim, messages.next_due. Locks: nothing. Result: NULL at the end of the topics.
-- A loose scan of both ready indexes: it reads one entry per topic, however many messages or wanted topics there are. A
-- topic with a low-water mark is returned without a check: looking for its first entry would walk over dead ones.
-- p_marks false: check.
CREATE OR REPLACE FUNCTION messages.next_topic(p_wanted text[], p_after text, p_marks boolean DEFAULT true)
RETURNS text
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  -- chr(1) sorts before, '~' after every character of a topic.
  v_from text := p_after || chr(1);
  v_next text;
BEGIN
  IF cardinality(p_wanted) = 1 AND p_wanted[1] <= p_after COLLATE "C" THEN
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
    SELECT min(w.topic COLLATE "C") INTO v_from
    FROM unnest(p_wanted) AS w (topic)
    WHERE w.topic COLLATE "C" > v_next COLLATE "C";
  END LOOP;
  RETURN NULL;
END
$$;
