-- Updates the breakers of all topics: counts ended attempts, opens and closes breakers. Every settle of a topic with a
-- breaker does that too; this function handles what was left over. It deletes the breakers of topics that no longer
-- have one, and announces that those which were open are closed.
--
-- Result: how many breakers are open.
-- Errors: none.
-- Locks: the rows of `messages.breaker`, without waiting.
-- Called by: tick.
CREATE OR REPLACE FUNCTION messages.update_breakers()
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_counted record;
  v_gone    messages.breaker;
BEGIN
  FOR v_counted IN
    SELECT c.topic, coalesce(t.breaker, d.breaker) AS policy
    FROM (SELECT DISTINCT c.topic FROM messages.breaker_count AS c) AS c
    JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(c.topic)
    LEFT JOIN messages.topic AS t ON t.topic = c.topic
    WHERE coalesce(t.breaker, d.breaker) IS NOT NULL
  LOOP
    PERFORM messages.update_breaker(v_counted.topic, v_counted.policy);
  END LOOP;
  FOR v_gone IN
    DELETE FROM messages.breaker AS b
    WHERE b.ctid = ANY (ARRAY(
      SELECT o.ctid
      FROM messages.breaker AS o
      JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(o.topic)
      WHERE d.breaker IS NULL
        AND NOT EXISTS (SELECT FROM messages.topic AS t WHERE t.topic = o.topic AND t.breaker IS NOT NULL)
      FOR UPDATE OF o SKIP LOCKED))
    RETURNING b.*
  LOOP
    IF v_gone.position = 'open' THEN
      v_gone.position := 'closed';
      v_gone.reason := 'the topic has no breaker any more';
      PERFORM messages.announce_breaker(v_gone, 'open');
    END IF;
  END LOOP;
  RETURN (SELECT count(*) FROM messages.breaker AS b WHERE b.position = 'open');
END
$$;
