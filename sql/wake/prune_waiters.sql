-- Delete expired waiters and expired rights to results, and lower the flag messages.awaited_flag once there is no
-- waiter, no dependency and no saved step.
-- Called by: prune. Locks: the rows it deletes, skipping those of waiters that are calling again; the tables of waiters
-- in SHARE mode, only if free at once: a session that begins to wait goes first. They are released at once by rolling
-- back the savepoint in which they were taken, which a setval survives: a later waiter raises the flag again. Result:
-- how many were deleted.
CREATE OR REPLACE FUNCTION messages.prune_waiters()
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_did bigint;
BEGIN
  DELETE FROM messages.expected_result AS x
  WHERE (x.message_id, x.role) IN (
    SELECT o.message_id, o.role
    FROM messages.expected_result AS o
    WHERE o.until < (SELECT messages.now())
    LIMIT 10000
    FOR UPDATE SKIP LOCKED);
  -- This does nothing while no client waits. Above READ COMMITTED the snapshot may be older than a waiter.
  IF pg_sequence_last_value('messages.awaited_flag') = 1
    OR current_setting('transaction_isolation') <> 'read committed'
  THEN
    RETURN 0;
  END IF;
  DELETE FROM messages.waiter AS w
  WHERE w.message_id = ANY (ARRAY(
    SELECT o.message_id
    FROM messages.waiter AS o
    WHERE o.until < (SELECT messages.now())
    LIMIT 1000
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_did = ROW_COUNT;
  BEGIN
    LOCK TABLE messages.waiter, messages.blocked_message, messages.step IN SHARE MODE NOWAIT;
    -- This is a separate statement: its snapshot must be younger than the locks.
    PERFORM setval('messages.awaited_flag', 1)
    WHERE NOT EXISTS (SELECT FROM messages.waiter) AND NOT EXISTS (SELECT FROM messages.blocked_message)
      AND NOT EXISTS (SELECT FROM messages.end_event) AND NOT EXISTS (SELECT FROM messages.step);
    RAISE EXCEPTION 'done' USING ERRCODE = 'PGR00';
  EXCEPTION WHEN lock_not_available OR SQLSTATE 'PGR00' THEN
    NULL;
  END;
  RETURN v_did;
END
$$;
