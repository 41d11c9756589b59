-- Topics with waiting messages and no worker that handles them (is_handled). Such messages stay ready; they are never lost and never
-- hidden.
-- Called by: examine_workers. Locks: nothing. Result: one row per topic, at most p_limit, in the order of their names.
CREATE OR REPLACE FUNCTION messages.unhandled_topics(p_limit integer DEFAULT 1000)
RETURNS SETOF text
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  -- Not by the marks: a topic with a mark need not have a message.
  v_topic text    := messages.next_topic(NULL, '', false);
  v_found integer := 0;
BEGIN
  WHILE v_topic IS NOT NULL AND v_found < p_limit LOOP
    -- What comes after others waits for them, not for a worker: it is at the end of its priority, or of its channel.
    IF NOT messages.is_handled(v_topic) AND (
      EXISTS (
        SELECT FROM generate_series(0, 9) AS p (priority)
        WHERE EXISTS (
          SELECT FROM messages.message AS m
          WHERE m.topic = v_topic AND m.priority = p.priority AND m.claim_id IS NULL AND m.channel IS NULL
            AND m.available_at < '9000-01-01 00:00+00'))
      OR EXISTS (
        SELECT FROM messages.message AS m
        WHERE m.topic = v_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL AND m.available_at < '9000-01-01 00:00+00')) THEN
      RETURN NEXT v_topic;
      v_found := v_found + 1;
    END IF;
    v_topic := messages.next_topic(NULL, v_topic, false);
  END LOOP;
END
$$;
