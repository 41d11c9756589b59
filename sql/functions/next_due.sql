-- How long until the next delayed message of these topics is due.
-- Called by: workers that found nothing, to set their timer. Locks: nothing.
-- Result: an interval (0 or less = due now), NULL = nothing waits.
CREATE OR REPLACE FUNCTION messages.next_due(p_topics text[])
RETURNS interval
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_topic text := messages.next_topic(p_topics, '');
  v_next  record;
  v_due   timestamptz;
BEGIN
  WHILE v_topic IS NOT NULL LOOP
    v_next := messages.next_priority(v_topic, (-1)::smallint, true);
    WHILE v_next.priority IS NOT NULL LOOP
      v_due := least(v_due, (
        SELECT m.available_at FROM messages.message AS m
        WHERE m.topic = v_topic AND m.priority = v_next.priority AND m.claim_id IS NULL AND m.channel IS NULL
          AND m.available_at >= v_next.low
        ORDER BY m.available_at LIMIT 1));
      v_next := messages.next_priority(v_topic, v_next.priority, true);
    END LOOP;
    -- Whatever is due already ends the search: the rest could only be read row by row.
    IF v_due <= v_now OR (messages.next_channel(v_topic, '', 9::smallint, v_now)).channel IS NOT NULL THEN
      RETURN least(v_due - v_now, '0');
    END IF;
    v_due := least(v_due, (
      SELECT min(m.available_at) FROM messages.message AS m
      WHERE m.topic = v_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL));
    v_topic := messages.next_topic(p_topics, v_topic);
  END LOOP;
  RETURN v_due - v_now;
END
$$;
