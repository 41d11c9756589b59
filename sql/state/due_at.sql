-- Returns when a message that waits is due: at its `available_at`. A message that comes back later to an ordered
-- channel keeps its `available_at`, which is its place: it is due when its channel is not held for it any more.
--
-- Arguments: columns of `messages.message`.
-- Errors: none.
-- Locks: none.
-- Called by: live_state, for a message in a channel that was attempted; explain_message.
CREATE OR REPLACE FUNCTION messages.due_at(p_id bigint, p_topic text, p_channel text, p_available_at timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN coalesce((
    SELECT r.blocked_until FROM messages.rate AS r
    WHERE r.kind = 'channel' AND r.topic = p_topic AND r.channel = p_channel AND r.blocked_by = p_id
  ), p_available_at);
END
$$;
