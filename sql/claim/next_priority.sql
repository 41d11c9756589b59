-- Walk over one topic's messages without a channel: the next priority after p_after that may have ready messages.
-- Called by: pick_without_channel, next_due. Locks: nothing.
-- Result: the priority and the position to read from; priority NULL at the end.
CREATE OR REPLACE FUNCTION messages.next_priority(p_topic text, p_after smallint, p_marks boolean, OUT priority smallint, OUT low timestamptz)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_marked smallint;
BEGIN
  SELECT w.priority, w.at INTO v_marked, low
  FROM messages.low_water AS w
  WHERE w.topic = p_topic AND w.priority > p_after AND w.at IS NOT NULL AND p_marks
  ORDER BY w.priority LIMIT 1;

  SELECT m.priority INTO priority
  FROM messages.message AS m
  WHERE m.topic = p_topic AND m.priority > p_after AND m.priority < coalesce(v_marked, 10) AND m.claim_id IS NULL AND m.channel IS NULL
  ORDER BY m.priority LIMIT 1;

  IF priority IS NOT NULL THEN
    low := '-infinity';
  ELSE
    priority := v_marked;
  END IF;
END
$$;
