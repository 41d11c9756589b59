-- Returns whether a message waits for its predecessors.
--
-- Errors: none.
-- Locks: none.
-- Called by: live_state, for a message whose available_at is that of one that waits for others.
CREATE OR REPLACE FUNCTION messages.is_blocked(p_id bigint)
RETURNS boolean
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN EXISTS (SELECT FROM messages.blocked_message AS k WHERE k.id = p_id);
END
$$;
