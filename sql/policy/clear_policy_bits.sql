-- Clear the bits of messages.policy_topic_bits, messages.always_topic_bits and messages.pattern_flag that nothing needs
-- any more.
-- Called by: prune. Locks: the tables of policies in SHARE mode, only if free at once: a session that writes a policy
-- goes first. They are released at once by rolling back the savepoint in which they were taken, which a setval
-- survives: a session that writes a policy later sets its bit again. Result: whether any bit was cleared.
CREATE OR REPLACE FUNCTION messages.clear_policy_bits()
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  v_did boolean;
BEGIN
  IF NOT messages.has_policies() AND pg_sequence_last_value('messages.always_topic_bits') IS NOT DISTINCT FROM 1
      AND pg_sequence_last_value('messages.pattern_flag') IS NOT DISTINCT FROM 1
    -- Above it the snapshot may be older than the policy.
    OR current_setting('transaction_isolation') <> 'read committed'
    -- A change of this transaction itself may be rolled back; its own lock does not keep it away.
    OR EXISTS (
      SELECT FROM pg_locks AS l
      WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.mode = 'RowExclusiveLock'
        AND l.relation IN ('messages.topic'::regclass, 'messages.subscription'::regclass)) THEN
    RETURN false;
  END IF;
  BEGIN
    LOCK TABLE messages.topic, messages.subscription IN SHARE MODE NOWAIT;
    -- A statement of its own: the look must be younger than the locks.
    PERFORM setval(p.sequence, p.has)
    FROM (VALUES
      ('messages.policy_topic_bits'::regclass, messages.policy_topic_bits()),
      ('messages.always_topic_bits', messages.always_topic_bits()),
      ('messages.pattern_flag', messages.pattern_flag())
    ) AS p (sequence, has)
    WHERE p.has <> pg_sequence_last_value(p.sequence);
    v_did := FOUND;
    RAISE EXCEPTION 'done' USING ERRCODE = 'PGR00';
  EXCEPTION
    WHEN lock_not_available THEN RETURN false;
    WHEN SQLSTATE 'PGR00' THEN RETURN v_did;
  END;
END
$$;
