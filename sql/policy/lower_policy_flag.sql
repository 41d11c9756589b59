-- Lower the flag of messages.raise_policy_flag once no topic needs it, and clear the bits of topics that no longer use such a policy.
-- Called by: prune. Locks: the tables of policies in SHARE mode, only if free at once: a session that writes a policy goes first. They are
-- released at once by rolling back the savepoint in which they were taken, which a setval survives: a session that writes a policy later
-- raises the flag again. Result: whether the flag was lowered.
CREATE OR REPLACE FUNCTION messages.lower_policy_flag()
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  v_did boolean;
BEGIN
  IF NOT messages.has_policies()
    -- Above it the snapshot may be older than the policy.
    OR current_setting('transaction_isolation') <> 'read committed' THEN
    RETURN false;
  END IF;
  BEGIN
    LOCK TABLE messages.topic, messages.subscription IN SHARE MODE NOWAIT;
    -- Statements of their own: the looks must be younger than the locks.
    PERFORM setval('messages.policy_topic_bits', p.has)
    FROM (SELECT messages.policy_topic_bits() AS has) AS p
    WHERE p.has IS DISTINCT FROM pg_sequence_last_value('messages.policy_topic_bits');
    v_did := NOT (
      EXISTS (SELECT FROM messages.topic AS t WHERE messages.needs_policy_flag(t))
      OR EXISTS (SELECT FROM messages.subscription)
      OR EXISTS (SELECT FROM messages.held_key)
      OR EXISTS (SELECT FROM messages.depth));
    IF v_did THEN
      PERFORM setval('messages.policy_flag', 1);
    END IF;
    RAISE EXCEPTION 'done' USING ERRCODE = 'PGR00';
  EXCEPTION
    WHEN lock_not_available THEN RETURN false;
    WHEN SQLSTATE 'PGR00' THEN RETURN v_did;
  END;
END
$$;
