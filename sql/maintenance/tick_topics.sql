-- The next topics that a task of the tick visits: a tick is bounded, however many topics there are, and each topic has
-- its turn in a later one.
-- Called by: renotify_stale, update_conditions. Locks: the task's row of tick_cursor.
-- Result: at most p_limit topics with waiting messages in the order of their names, after the last one of the task's
-- run before; fewer = the walk has reached the end, and begins again with the next run.
CREATE OR REPLACE FUNCTION messages.tick_topics(p_task text, p_limit integer)
RETURNS text[]
LANGUAGE plpgsql
AS $$
DECLARE
  v_topics text[] := messages.waiting_topics(messages.tick_cursor(p_task), p_limit);
BEGIN
  INSERT INTO messages.tick_cursor AS c (task, topic)
  VALUES (p_task, CASE WHEN cardinality(v_topics) >= p_limit THEN v_topics[cardinality(v_topics)] ELSE '' END)
  ON CONFLICT (task) DO UPDATE SET topic = excluded.topic WHERE c.topic <> excluded.topic;
  RETURN v_topics;
END
$$;
