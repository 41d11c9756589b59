-- Returns how long it is until the next message of these topics is due, for a timer. A worker learns the same from
-- `messages.claim_with_next_due`.
--
-- Arguments: `p_topics`: names and patterns, as for `messages.claim`. `p_held_back`: [what a claim held
-- back](#what-limits-hold-back); this is ignored until the times that it names.
-- Result: 0 = a message is due now, perhaps one that another worker is claiming at this moment; NULL = no message waits
-- for a time.
-- Errors: none.
-- Locks: none.
-- Repeat: it only reads.
-- Called by: workers that found nothing, to set their timer.
-- Inside: a claim gives it {"full <topic or pattern>": null} for what the worker has no slot for.
CREATE OR REPLACE FUNCTION messages.next_due(p_topics text[], p_held_back jsonb DEFAULT NULL)
RETURNS interval
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_patterns text[]    := CASE
    WHEN strpos(array_to_string(p_topics, ''), '*') > 0 THEN messages.topic_patterns(p_topics)
  END;
  v_wanted text[]      := p_topics;
  v_except text[];
  v_topic  text;
  v_next   record;
  v_due    timestamptz;
BEGIN
  IF p_held_back IS NOT NULL AND p_topics IS NOT NULL THEN
    v_due := (
      SELECT min(h.value::timestamptz)
      FROM jsonb_each_text(p_held_back) AS h
      WHERE starts_with(h.key, 'topic '));
    v_wanted := ARRAY(
      SELECT w.topic FROM unnest(p_topics) AS w (topic)
      WHERE NOT p_held_back ?| ARRAY['topic ' || w.topic, 'full ' || w.topic]);
    IF v_patterns IS NOT NULL THEN
      -- Full patterns are left out: they keep no topic from a more specific one.
      v_except := ARRAY(
        SELECT substr(h.key, strpos(h.key, ' ') + 1) FROM jsonb_object_keys(p_held_back) AS h (key)
        WHERE starts_with(h.key, 'topic ') OR starts_with(h.key, 'full ') AND right(h.key, 1) <> '*');
    END IF;
  END IF;
  v_topic := messages.next_topic(v_wanted, '', true, v_patterns, v_except);
  WHILE v_topic IS NOT NULL AND (v_due > v_now) IS NOT FALSE LOOP
    SELECT n.* INTO v_next FROM messages.next_priority(v_topic, (-1)::smallint, true) AS n;
    WHILE v_next.priority IS NOT NULL LOOP
      v_due := least(v_due, (
        SELECT m.available_at FROM messages.message AS m
        WHERE m.topic = v_topic AND m.priority = v_next.priority AND m.claim_id IS NULL AND m.channel IS NULL
          AND m.available_at >= v_next.low
        ORDER BY m.available_at LIMIT 1));
      SELECT n.* INTO v_next FROM messages.next_priority(v_topic, v_next.priority, true) AS n;
    END LOOP;
    v_due := least(
      v_due,
      messages.next_channel_due(v_topic, v_now, coalesce(p_held_back ? ('channels ' || v_topic), false)),
      (p_held_back ->> ('channels ' || v_topic))::timestamptz);
    v_topic := messages.next_topic(v_wanted, v_topic, true, v_patterns, v_except);
  END LOOP;
  RETURN CASE WHEN v_due IS NOT NULL THEN greatest(v_due - v_now, '0') END;
END
$$;
