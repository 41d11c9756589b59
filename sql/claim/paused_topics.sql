-- The paused ones of some topics, as far as they have ready messages, and the others.
-- Called by: claim_with_next_due, once it has met several topics that are stopped: to look at thousands one by one
-- takes seconds.
-- Locks: nothing.
-- A topic is paused where messages.topic_state says so; test_topic_state.py compares them.
-- held_back: {"topic <topic>": until}, as claim_with_next_due returns it; until = null: until it is resumed. others:
-- the topics that are not paused, in their order. Topics without messages are in neither.
CREATE OR REPLACE FUNCTION messages.paused_topics(p_topics text[], p_now timestamptz)
RETURNS TABLE (held_back jsonb, others text[])
LANGUAGE sql
STABLE
AS $$
  SELECT
    coalesce(jsonb_object_agg('topic ' || r.topic, nullif(r.until, 'infinity')) FILTER (WHERE r.until > p_now), '{}'),
    coalesce(array_agg(r.topic ORDER BY r.nth) FILTER (WHERE (r.until > p_now) IS NOT TRUE), '{}')
  FROM (
    SELECT w.topic, w.nth, greatest(
      CASE WHEN t.paused_at IS NOT NULL THEN coalesce(t.resume_at, 'infinity') END,
      CASE WHEN d.paused_at IS NOT NULL THEN coalesce(d.resume_at, 'infinity') END) AS until
    FROM unnest(p_topics) WITH ORDINALITY AS w (topic, nth)
    JOIN messages.topic AS d ON d.topic = '*'
    LEFT JOIN messages.topic AS t ON t.topic = w.topic
    -- Two conditions, since channels have an index of their own.
    WHERE EXISTS (
      SELECT FROM messages.message AS m
      WHERE m.topic = w.topic AND m.claim_id IS NULL AND m.channel IS NULL)
      OR EXISTS (
        SELECT FROM messages.message AS m
        WHERE m.topic = w.topic AND m.claim_id IS NULL AND m.channel IS NOT NULL)) AS r
$$;
