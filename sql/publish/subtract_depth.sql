-- Subtract messages that ended from the max_depth counters of their topics.
-- Called by: apply_end_policies. p_topics: one entry for each message. Locks: nothing: it adds rows, and the session
-- that needs the depth sums them up once they are committed (apply_depth_changes). Until then ended messages still
-- count. So settles of such topics wait for no lock, in whatever order. Topics without a counter are left out: a new
-- counter starts from a count.
CREATE OR REPLACE FUNCTION messages.subtract_depth(p_topics text[])
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  INSERT INTO messages.depth_change (topic, change)
  SELECT e.topic, -e.ended
  FROM (SELECT p.topic, count(*) AS ended FROM unnest(p_topics) AS p (topic) GROUP BY p.topic) AS e
  WHERE EXISTS (SELECT FROM messages.depth AS d WHERE d.topic = e.topic);
END
$$;
