-- Walk over one topic's messages without a channel: the next priority after p_after that may have ready messages.
-- Called by: pick_without_channel, next_due. Locks: nothing.
-- Result: the priority and the position to read from; priority NULL at the end.
CREATE OR REPLACE FUNCTION messages.next_priority(p_topic text, p_after smallint, p_marks boolean, OUT priority smallint, OUT low timestamptz)
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  SELECT coalesce(unmarked.priority, w.priority), CASE WHEN unmarked.priority IS NULL THEN w.at ELSE '-infinity' END
  INTO priority, low
  FROM (VALUES (true)) AS one
  LEFT JOIN LATERAL (
    SELECT l.priority, l.at FROM messages.low_water AS l
    WHERE l.topic = p_topic AND l.priority > p_after AND l.at IS NOT NULL AND p_marks
    ORDER BY l.priority LIMIT 1) AS w ON true
  LEFT JOIN LATERAL (
    SELECT m.priority FROM messages.message AS m
    WHERE m.topic = p_topic AND m.priority > p_after AND m.priority < coalesce(w.priority, 10) AND m.claim_id IS NULL AND m.channel IS NULL
    ORDER BY m.priority LIMIT 1) AS unmarked ON true;
END
$$;
