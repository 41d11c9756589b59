-- Whether a message stands in an ordered channel, which waits for it.
-- Called by: hand_back. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.is_ordered(p_id bigint)
RETURNS boolean
LANGUAGE sql
STABLE
AS $$
  SELECT m.channel IS NOT NULL AND coalesce(t.ordered, d.ordered)
  FROM messages.message AS m
  CROSS JOIN messages.topic AS d
  LEFT JOIN messages.topic AS t ON t.topic = m.topic
  WHERE m.id = p_id AND d.topic = '*'
$$;
