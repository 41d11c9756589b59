-- The message that holds a key of a topic with key_ttl.
-- Called by: hold_keys, publish_with_key. Locks: nothing. Result: a row of NULLs = none does.
CREATE OR REPLACE FUNCTION messages.key_holder(p_topic text, p_key text)
RETURNS messages.held_key
LANGUAGE sql
VOLATILE
AS $$
  SELECT h.* FROM messages.held_key AS h
  WHERE h.topic = p_topic AND h.key = p_key AND (h.free_at IS NULL OR h.free_at > messages.now())
$$;
