-- Whether a message is in an ordered channel, whose later messages wait for it.
-- Called by: return_attempts. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.is_in_ordered_channel(p_id bigint)
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
