-- Truncate the staging tables if they are large and not in use.
-- Called by: delete_staged, prune_jobs. Locks: the stage, until the transaction ends; tried only. Result: whether it is
-- empty now. Above READ COMMITTED the snapshot may be older than rows of other sessions: there it does nothing.
CREATE OR REPLACE FUNCTION messages.truncate_stage()
RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
  IF EXISTS (SELECT FROM messages.publish_attempt) OR current_setting('transaction_isolation') <> 'read committed'
    OR pg_relation_size('messages.publish_stage') < 8 * 1024 * 1024 THEN
    RETURN false;
  END IF;
  LOCK TABLE messages.publish_stage IN ACCESS EXCLUSIVE MODE NOWAIT;
  -- A session that staged before the lock has registered before, and is seen now.
  IF EXISTS (SELECT FROM messages.publish_attempt) THEN
    RETURN false;
  END IF;
  TRUNCATE messages.publish_stage;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END
$$;
