-- Forget those who died waiting, or gave up, and take the mark messages.awaited down once nobody waits, nothing comes after anything and no
-- step is kept.
-- Called by: prune. Locks: the rows it deletes, passing over those of somebody who calls again right now; the tables of those who wait in SHARE
-- mode, tried only: who begins to wait goes first. They are given back at once, by undoing the savepoint in which they were taken, which a
-- setval survives: who begins later raises the mark again. Result: how many were forgotten.
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
  BEGIN
    LOCK TABLE messages.waiter, messages.parked, messages.step IN SHARE MODE NOWAIT;
    -- A statement of its own: the look must be younger than the locks.
    PERFORM setval('messages.awaited', 1)
    WHERE NOT EXISTS (SELECT FROM messages.waiter) AND NOT EXISTS (SELECT FROM messages.parked)
      AND NOT EXISTS (SELECT FROM messages.ending) AND NOT EXISTS (SELECT FROM messages.step);
    RAISE EXCEPTION 'done' USING ERRCODE = 'PGR00';
  EXCEPTION WHEN lock_not_available OR SQLSTATE 'PGR00' THEN
    NULL;
  END;
  RETURN v_did;
END
$$;
