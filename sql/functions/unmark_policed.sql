-- Take the mark of messages.mark_policed back once nothing asks for it any more, and that of topics which use no such policy any more.
-- Called by: prune. Locks: an advisory lock until the transaction ends, tried only: who writes a policy right now goes first.
-- Result: whether the mark was lowered.
CREATE OR REPLACE FUNCTION messages.unmark_policed()
RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
  IF NOT messages.is_policed()
    -- Above it the snapshot may be older than the policy.
    OR current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(hashtextextended('messages.policed', 0)) THEN
    RETURN false;
  END IF;
  PERFORM setval('messages.policed_topics', p.has)
  FROM (SELECT messages.policed_topics() AS has) AS p
  WHERE p.has IS DISTINCT FROM pg_sequence_last_value('messages.policed_topics');
  IF EXISTS (SELECT FROM messages.topic AS t WHERE messages.needs_mark(t))
    OR EXISTS (SELECT FROM messages.subscription)
    OR EXISTS (SELECT FROM messages.held_key)
    OR EXISTS (SELECT FROM messages.depth) THEN
    RETURN false;
  END IF;
  PERFORM setval('messages.policed', 1);
  RETURN true;
END
$$;
