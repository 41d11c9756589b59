-- Handle depth changes of topics that have no counter: dead letters and redrives of a topic with max_depth to which
-- nothing is published get one; changes that arrived after an unused counter was deleted are deleted too.
-- Called by: recount_depth. Locks: as lock_depth, waited for 50 ms at the most: a tick has locked messages, and
-- sessions that hold a counter may wait for those. Then it is left for the next tick.
CREATE OR REPLACE FUNCTION messages.create_depths()
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_each record;
  v_wait text := current_setting('lock_timeout');
BEGIN
  FOR v_each IN
    SELECT c.topic, a.max_depth
    FROM (SELECT DISTINCT c.topic FROM messages.depth_change AS c) AS c
    CROSS JOIN LATERAL messages.publish_policy(c.topic) AS a
    WHERE NOT EXISTS (SELECT FROM messages.depth AS d WHERE d.topic = c.topic)
    ORDER BY c.topic
  LOOP
    -- If it is undone, so is the timeout.
    BEGIN
      PERFORM set_config('lock_timeout', '50ms', true);
      IF v_each.max_depth IS NOT NULL THEN
        PERFORM messages.lock_depth(v_each.topic);
      ELSE
        DELETE FROM messages.depth_change AS c WHERE c.topic = v_each.topic;
      END IF;
      PERFORM set_config('lock_timeout', v_wait, true);
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      CONTINUE;
    END;
  END LOOP;
END
$$;
