-- What becomes of a message that would be ready again while a newer one of its key is: supersede (it gives way) or keep (both stay).
-- Called by: retry, hand_back, for messages that meet one. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.key_retry(p_topic text)
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(
    (SELECT t.key_retry FROM messages.topic AS t WHERE t.topic = p_topic),
    (SELECT d.key_retry FROM messages.topic AS d WHERE d.topic = '*'))
$$;
