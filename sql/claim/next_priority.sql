-- Walk over one topic's messages without a channel: the next priority after p_after that may have ready messages.
-- Called by: claim, pick_without_channel, next_due. Locks: nothing.
-- Result: the priority, the position to read from, and of the first message its time and its own max_attempts (both
-- NULL where there is a mark: it is not read); priority NULL at the end. In SQL without settings, so that it becomes
-- part of its caller's statement.
CREATE OR REPLACE FUNCTION messages.next_priority(p_topic text, p_after smallint, p_marks boolean)
RETURNS TABLE (priority smallint, low timestamptz, first_at timestamptz, first_max_attempts integer)
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(unmarked.priority, w.priority), CASE WHEN unmarked.priority IS NULL THEN w.at ELSE '-infinity' END,
         unmarked.available_at, unmarked.max_attempts::integer
  FROM (VALUES (true)) AS one
  LEFT JOIN LATERAL (
    SELECT l.priority, l.at FROM messages.low_water AS l
    WHERE l.topic = p_topic AND l.priority > p_after AND l.at IS NOT NULL AND p_marks
    ORDER BY l.priority LIMIT 1) AS w ON true
  LEFT JOIN LATERAL (
    SELECT m.priority, m.available_at, m.max_attempts FROM messages.message AS m
    WHERE m.topic = p_topic AND m.priority > p_after AND m.priority < coalesce(w.priority, 10)
      AND m.claim_id IS NULL AND m.channel IS NULL
    ORDER BY m.priority, m.available_at LIMIT 1) AS unmarked ON true
$$;
