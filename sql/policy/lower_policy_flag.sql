-- Take the mark of messages.mark_policed back once nothing asks for it any more, and that of topics which use no such policy any more.
-- Called by: prune. Locks: the tables of policies in SHARE mode, tried only: who writes a policy right now goes first. They are given back at
-- once, by undoing the savepoint in which they were taken, which a setval survives: who writes one later marks again.
-- Result: whether the mark was lowered.
CREATE OR REPLACE FUNCTION messages.unmark_policed()
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  v_did boolean;
BEGIN
  IF NOT messages.is_policed()
    -- Above it the snapshot may be older than the policy.
    OR current_setting('transaction_isolation') <> 'read committed' THEN
    RETURN false;
  END IF;
  BEGIN
    LOCK TABLE messages.topic, messages.subscription IN SHARE MODE NOWAIT;
    -- Statements of their own: the looks must be younger than the locks.
    PERFORM setval('messages.policed_topics', p.has)
    FROM (SELECT messages.policed_topics() AS has) AS p
    WHERE p.has IS DISTINCT FROM pg_sequence_last_value('messages.policed_topics');
    v_did := NOT (
      EXISTS (SELECT FROM messages.topic AS t WHERE messages.needs_mark(t))
      OR EXISTS (SELECT FROM messages.subscription)
      OR EXISTS (SELECT FROM messages.held_key)
      OR EXISTS (SELECT FROM messages.depth));
    IF v_did THEN
      PERFORM setval('messages.policed', 1);
    END IF;
    RAISE EXCEPTION 'done' USING ERRCODE = 'PGR00';
  EXCEPTION
    WHEN lock_not_available THEN RETURN false;
    WHEN SQLSTATE 'PGR00' THEN RETURN v_did;
  END;
END
$$;
