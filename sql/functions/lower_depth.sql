-- Make room: messages of topics with max_depth have ended.
-- Called by: depart. p_topics: one entry for each message. Locks: the topics' rows of depth in the order of their names, until the transaction ends.
-- Never below 0: a limit that was set while older transactions ran counts from what it saw, until recount_depth has put it right.
CREATE OR REPLACE FUNCTION messages.lower_depth(p_topics text[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_each record;
BEGIN
  FOR v_each IN
    SELECT e.topic, e.ended
    FROM (SELECT p.topic, count(*) AS ended FROM unnest(p_topics) AS p (topic) GROUP BY p.topic) AS e
    WHERE EXISTS (SELECT FROM messages.depth AS d WHERE d.topic = e.topic)
    ORDER BY e.topic COLLATE "C"
  LOOP
    UPDATE messages.depth AS d SET rows = greatest(0, d.rows - v_each.ended) WHERE d.topic = v_each.topic;
  END LOOP;
END
$$;
