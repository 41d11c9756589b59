-- Deal with changes of depth that have no counter: dead letters and redrives of a topic with max_depth to which nobody publishes, for which
-- one is made; and what came in while a counter was forgotten that nothing asked for, which goes.
-- Called by: recount_depth. Locks: as lock_depth, waited for 50 ms at the most: a tick has locked messages that others may hold up a counter
-- for. Then it is left for the next one.
CREATE OR REPLACE FUNCTION messages.make_depths()
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
  v_each record;
  v_wait text := current_setting('lock_timeout');
BEGIN
  FOR v_each IN
    SELECT c.topic, a.max_depth
    FROM (SELECT DISTINCT c.topic FROM messages.depth_change AS c) AS c
    CROSS JOIN LATERAL messages.admission(c.topic) AS a
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
