-- Say that the end of some message matters to somebody: to one who waits for it, to one that comes after it, or to the steps that it kept.
-- Called by: wait_for, park, keep_step, prune; before what they wrote is committed. While the mark is down ends look nowhere.
-- Locks: an advisory lock, shared, until the transaction ends: forget_waiters takes it alone, so it never lowers the mark under what it
-- cannot see yet.
CREATE OR REPLACE FUNCTION messages.mark_awaited()
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtextextended('messages.awaited', 0));
  IF pg_sequence_last_value('messages.awaited') = 1 THEN
    PERFORM setval('messages.awaited', 2);
  END IF;
END
$$;
