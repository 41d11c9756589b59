-- Update all breakers, and delete those of topics that no longer have one. If such a breaker was open, announce that it closed.
-- Called by: tick. Locks: as update_breaker; a breaker that a settle is updating is left to the next tick. Result: how many breakers are open.
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
    CROSS JOIN messages.topic AS d
    LEFT JOIN messages.topic AS t ON t.topic = c.topic
    WHERE d.topic = '*' AND coalesce(t.breaker, d.breaker) IS NOT NULL
  LOOP
    PERFORM messages.update_breaker(v_counted.topic, v_counted.policy);
  END LOOP;
  FOR v_gone IN
    DELETE FROM messages.breaker AS b
    WHERE b.ctid = ANY (ARRAY(
      SELECT o.ctid
      FROM messages.breaker AS o
      CROSS JOIN messages.topic AS d
      WHERE d.topic = '*' AND d.breaker IS NULL
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
