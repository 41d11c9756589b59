-- Returns whether a topic may have ready messages with a channel.
-- Called by: claim. Locks: nothing. A topic whose channels have a low-water mark has had some; where there is none,
-- looking for a first entry does not walk over dead ones. In SQL without settings, so that it becomes part of its
-- caller's statement.
CREATE OR REPLACE FUNCTION messages.may_have_channels(p_topic text)
RETURNS TABLE (may_have_channels boolean)
LANGUAGE sql
STABLE
AS $$
  SELECT EXISTS (SELECT FROM messages.low_water AS w WHERE w.topic = p_topic AND w.priority = -1)
    OR EXISTS (
      SELECT FROM messages.message AS m
      WHERE m.topic = p_topic AND m.claim_id IS NULL AND m.channel IS NOT NULL)
$$;
