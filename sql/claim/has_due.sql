-- Returns whether a topic has a due message without a channel.
-- Called by: claim_with_next_due. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.has_due(p_topic text, p_now timestamptz)
RETURNS boolean
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_next record;
BEGIN
  SELECT n.* INTO v_next FROM messages.next_priority(p_topic, (-1)::smallint, true) AS n;
  WHILE v_next.priority IS NOT NULL LOOP
    IF coalesce(v_next.first_at <= p_now, EXISTS (
      SELECT FROM messages.message AS m
      WHERE m.topic = p_topic AND m.priority = v_next.priority AND m.claim_id IS NULL AND m.channel IS NULL
        AND m.available_at >= v_next.low AND m.available_at <= p_now))
    THEN
      RETURN true;
    END IF;
    SELECT n.* INTO v_next FROM messages.next_priority(p_topic, v_next.priority, true) AS n;
  END LOOP;
  RETURN false;
END
$$;
