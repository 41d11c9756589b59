-- Forget those who died waiting, or gave up, and take the mark messages.awaited down once nobody waits, nothing comes after anything and no
-- step is kept.
-- Called by: prune. Locks: the rows it deletes, passing over those of somebody who calls again right now; an advisory lock until the
-- transaction ends, tried only: who begins to wait goes first. Result: how many were forgotten.
CREATE OR REPLACE FUNCTION messages.forget_waiters()
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_did bigint;
BEGIN
  -- Nothing at all while nobody waits. Above READ COMMITTED the snapshot may be older than a waiter.
  IF pg_sequence_last_value('messages.awaited') = 1 OR current_setting('transaction_isolation') <> 'read committed' THEN
    RETURN 0;
  END IF;
  DELETE FROM messages.waiter AS w
  WHERE w.message_id = ANY (ARRAY(
    SELECT o.message_id FROM messages.waiter AS o WHERE o.until < (SELECT messages.now()) LIMIT 1000 FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_did = ROW_COUNT;
  -- Two statements: the look must be younger than the lock.
  IF pg_try_advisory_xact_lock(hashtextextended('messages.awaited', 0)) THEN
    PERFORM setval('messages.awaited', 1)
    WHERE NOT EXISTS (SELECT FROM messages.waiter) AND NOT EXISTS (SELECT FROM messages.parked)
      AND NOT EXISTS (SELECT FROM messages.ending) AND NOT EXISTS (SELECT FROM messages.step);
  END IF;
  RETURN v_did;
END
$$;
