-- Whether a lock of this topic that has run out may not be settled any more.
-- Called by: archive, retry and hand_back, for locks that have run out. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.is_strict(p_topic text)
RETURNS boolean
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(
    (SELECT t.strict_lock FROM messages.topic AS t WHERE t.topic = p_topic),
    (SELECT d.strict_lock FROM messages.topic AS d WHERE d.topic = '*'))
$$;
