-- Returns what the archive keeps of a message of this topic that succeeds: the topic's archive_success.
-- Called by: archive, complete. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.kept_of_success(p_topic text)
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT coalesce(
    (SELECT t.archive_success FROM messages.topic AS t WHERE t.topic = p_topic),
    (SELECT d.archive_success FROM messages.inherited_policy AS d WHERE d.topic = messages.inherits_from(p_topic)))
$$;
