-- Returns what happens to a message that would become ready again while a newer one with its key is ready: supersede
-- (it gives way) or keep (both stay).
-- Called by: retry, return_attempts, for messages that meet one. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.key_on_retry(p_topic text)
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(
    (SELECT t.key_on_retry FROM messages.topic AS t WHERE t.topic = p_topic),
    (SELECT d.key_on_retry FROM messages.inherited_policy AS d WHERE d.topic = messages.inherits_from(p_topic)))
$$;
