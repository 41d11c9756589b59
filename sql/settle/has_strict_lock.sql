-- Returns whether an expired lock of this topic may no longer be settled.
-- Called by: archive, complete, retry and return_attempts, for locks that have run out. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.has_strict_lock(p_topic text)
RETURNS boolean
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(
    (SELECT t.strict_lock FROM messages.topic AS t WHERE t.topic = p_topic),
    (SELECT d.strict_lock FROM messages.inherited_policy AS d WHERE d.topic = messages.inherits_from(p_topic)))
$$;
