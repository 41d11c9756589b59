-- Returns topics with waiting messages that no worker handles, at most `p_limit`, in the order of their names. Such
-- messages stay ready.
--
-- A topic is handled if a worker of the registry names it and `handles` messages (`messages.worker_state`): it is alive
-- and not stopping. Or if a worker outside of the registry (in plain SQL) sleeps armed for it. Or if a worker that is
-- not a daemon of the registry, and is not stopping, holds a message of it whose lock has not expired. `stats`,
-- `conditions`, `explain` and the doctor use the same rule. It has a limit: a worker outside of the registry that
-- neither sleeps armed nor holds a message at the moment of the check is not seen; and the check reads at most 1000
-- locked messages of a topic. A worker that works for short moments with long pauses can call
-- `messages.register_worker` and `messages.touch_worker`, and is then known.
--
-- Errors: none.
-- Locks: none.
-- Called by: examine_workers.
CREATE OR REPLACE FUNCTION messages.unhandled_topics(p_limit integer DEFAULT 1000)
RETURNS SETOF text
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  -- The marks do not answer this: a topic with a mark need not have a message.
  v_topic text    := messages.next_topic(NULL, '', false);
  v_found integer := 0;
BEGIN
  WHILE v_topic IS NOT NULL AND v_found < p_limit LOOP
    -- A message that comes after others waits for them, not for a worker: it is at the end of its priority, or of its
    -- channel.
    IF NOT messages.is_handled(v_topic) AND (
      EXISTS (
        SELECT FROM generate_series(0, 9) AS p (priority)
        WHERE EXISTS (
          SELECT FROM messages.message AS m
          WHERE m.topic = v_topic AND m.priority = p.priority AND m.claim_id IS NULL AND m.channel IS NULL
            AND m.available_at < '9000-01-01 00:00+00'))
      OR EXISTS (
        SELECT FROM messages.message AS m
        WHERE m.topic = v_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL
          AND m.available_at < '9000-01-01 00:00+00')) THEN
      RETURN NEXT v_topic;
      v_found := v_found + 1;
    END IF;
    v_topic := messages.next_topic(NULL, v_topic, false);
  END LOOP;
END
$$;
