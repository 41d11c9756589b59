-- The notify policy of a topic: auto (only for armed sleepers), always, off.
-- Called by: notify_topics, notify_inserted. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.notify_policy(p_topic text)
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(
    (SELECT t.notify FROM messages.topic AS t WHERE t.topic = p_topic),
    (SELECT d.notify FROM messages.topic AS d WHERE d.topic = '*'))
$$;
