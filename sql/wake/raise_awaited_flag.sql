-- Record that the end of some message matters: to a waiter, to a successor, or to saved steps.
-- Called by: wait_for, add_dependencies, save_step, after they wrote that and before it is committed; prune. While the
-- flag is not raised, ends look for neither. Locks: nothing. A session that wrote to messages.waiter, blocked_message
-- or step holds a lock on it until it commits, with which prune_waiters conflicts: it never lowers the flag for rows
-- that it cannot see yet. (If the flag were read before the row is written, it could be lowered in between.)
CREATE OR REPLACE FUNCTION messages.raise_awaited_flag()
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF pg_sequence_last_value('messages.awaited_flag') = 1 THEN
    PERFORM setval('messages.awaited_flag', 2);
  END IF;
END
$$;
