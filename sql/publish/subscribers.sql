-- The topics that subscribe to a topic, by its name or by a pattern of it.
-- Called by: fan_out, lock_publish_limits, subscription_changed, examine_workers. Locks: nothing. Result: each once. In
-- SQL without settings, so that it becomes part of its caller's statement.
CREATE OR REPLACE FUNCTION messages.subscribers(p_topic text)
RETURNS TABLE (subscriber text)
LANGUAGE sql
STABLE
AS $$
  SELECT DISTINCT s.subscriber::text COLLATE "C"
  FROM messages.subscription AS s
  WHERE s.topic = ANY (messages.names_of(p_topic))
$$;
