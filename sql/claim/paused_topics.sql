-- The paused ones of some topics, as far as they have ready messages, and the others.
-- Called by: claim_with_next_due, once it has met several topics that are stopped: to look at thousands one by one
-- takes seconds. p_patterns: as of next_topic.
-- Locks: nothing.
-- A topic is paused where messages.topic_state says so; test_topic_state.py compares them.
-- held_back: {"topic <topic>": until}, as claim_with_next_due returns it; until = null: until it is resumed. others:
-- the topics that are not paused, in their order. Topics without messages are in neither. except_topics: what is
-- paused of the topics of patterns.
CREATE OR REPLACE FUNCTION messages.paused_topics(
  p_topics text[], p_now timestamptz, p_patterns text[] DEFAULT NULL
)
RETURNS TABLE (held_back jsonb, others text[], except_topics text[])
LANGUAGE sql
STABLE
AS $$
  SELECT
    coalesce(jsonb_object_agg('topic ' || r.topic, nullif(r.until, 'infinity')) FILTER (WHERE r.until > p_now), '{}'),
    coalesce(
      array_agg(r.topic ORDER BY r.nth) FILTER (WHERE (r.until > p_now) IS NOT TRUE AND r.nth IS NOT NULL), '{}'),
    array_agg(r.topic) FILTER (WHERE r.nth IS NULL)
  FROM (
    SELECT w.topic, w.nth, greatest(
      CASE WHEN t.paused_at IS NOT NULL THEN coalesce(t.resume_at, 'infinity') END,
      CASE WHEN d.paused_at IS NOT NULL THEN coalesce(d.resume_at, 'infinity') END) AS until
    FROM unnest(p_topics) WITH ORDINALITY AS w (topic, nth)
    JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(w.topic)
    LEFT JOIN messages.topic AS t ON t.topic = w.topic
    -- Two conditions, since channels have an index of their own.
    WHERE EXISTS (
      SELECT FROM messages.message AS m
      WHERE m.topic = w.topic AND m.claim_id IS NULL AND m.channel IS NULL)
      OR EXISTS (
        SELECT FROM messages.message AS m
        WHERE m.topic = w.topic AND m.claim_id IS NULL AND m.channel IS NOT NULL)
      OR w.topic = ANY (p_patterns)
    UNION ALL
    SELECT t.topic, NULL, coalesce(t.resume_at, 'infinity')
    FROM messages.topic AS t
    WHERE t.paused_at IS NOT NULL AND coalesce(t.resume_at, 'infinity') > p_now AND t.topic <> '*'
      AND (t.topic = ANY (p_topics)) IS NOT TRUE
      AND (t.topic LIKE '%*' AND p_patterns IS NOT NULL OR messages.find_pattern(p_patterns, t.topic) = ANY (p_topics))
  ) AS r
$$;
