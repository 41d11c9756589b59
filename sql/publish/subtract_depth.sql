-- Make room: messages of topics with max_depth have ended.
-- Called by: depart. p_topics: one entry for each message. Locks: nothing: it adds rows, and whoever needs the depth adds them up, once they
-- are committed (fold_depth). Until then what has ended counts as still there. So settles of such topics wait for nobody, in whatever order.
-- Topics without a counter are left out: who makes one counts what is there.
CREATE OR REPLACE FUNCTION messages.lower_depth(p_topics text[])
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
