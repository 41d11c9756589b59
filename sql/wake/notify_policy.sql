-- Whether publishes of a topic ring: auto (only for armed sleepers), always, off.
-- Called by: ring, ring_published. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.notify_policy(p_topic text)
RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT coalesce(
    (SELECT t.notify FROM messages.topic AS t WHERE t.topic = p_topic),
    (SELECT d.notify FROM messages.topic AS d WHERE d.topic = '*'))
$$;
