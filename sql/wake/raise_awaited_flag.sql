-- Say that the end of some message matters to somebody: to one who waits for it, to one that comes after it, or to the steps that it kept.
-- Called by: wait_for, park, keep_step, after they wrote that and before it is committed; prune. While the mark is down ends look nowhere.
-- Locks: nothing. Whoever has written to messages.waiter, parked or step holds a lock on it until that is committed, with which forget_waiters
-- conflicts: it never lowers the mark under what it cannot see yet. (Read before the row is written, the mark could be lowered in between.)
CREATE OR REPLACE FUNCTION messages.mark_awaited()
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF pg_sequence_last_value('messages.awaited') = 1 THEN
    PERFORM setval('messages.awaited', 2);
  END IF;
END
$$;
