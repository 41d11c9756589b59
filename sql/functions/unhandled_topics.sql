-- Topics with messages that wait while nobody handles them, by the rule of is_handled. Such messages stay ready; they are never lost and never hidden.
-- Called by: pgrouse stats. Locks: nothing. Result: one row per topic.
CREATE OR REPLACE FUNCTION messages.unhandled_topics()
RETURNS SETOF text
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
  -- Not by the marks: a topic with a mark need not have a message.
  v_topic text := messages.next_topic(NULL, '', false);
BEGIN
  WHILE v_topic IS NOT NULL LOOP
    IF NOT messages.is_handled(v_topic) THEN
      RETURN NEXT v_topic;
    END IF;
    v_topic := messages.next_topic(NULL, v_topic, false);
  END LOOP;
END
$$;
