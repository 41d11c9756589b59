-- When a transaction commits that changed what is in batches, count it. It runs at the commit, once for the whole
-- transaction: so the shards that two transactions need are locked in one order, and no longer than a commit takes. If
-- one is held for longer (by an open close_batch), the changes are left to the tick, which counts them in its own
-- transaction: no settle waits long, or fails, because of others. So it is above READ COMMITTED.
-- Locks: as apply_batch_changes, each waited for 200 ms at the most.
CREATE OR REPLACE FUNCTION messages.apply_batch_changes_at_commit()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_wait text := current_setting('lock_timeout');
  v_ids  bigint[];
BEGIN
  -- Each row has this trigger: the first one has added all, or left them to the tick. Looked up by its id, since the
  -- rows of the transaction that are gone would be read again for each.
  IF current_setting('transaction_isolation') <> 'read committed'
    OR (SELECT true FROM messages.batch_change AS c WHERE c.id = NEW.id AND c.xid <> '0') IS NULL THEN
    RETURN NULL;
  END IF;
  v_ids := ARRAY(SELECT c.id FROM messages.batch_change AS c WHERE c.xid = pg_current_xact_id());
  -- If it is undone, so is the timeout.
  BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    PERFORM messages.apply_batch_changes(v_ids);
    PERFORM set_config('lock_timeout', v_wait, true);
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    UPDATE messages.batch_change AS c SET xid = '0' WHERE c.id = ANY (v_ids);
  END;
  RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS apply_batch_changes_at_commit ON messages.batch_change;
CREATE CONSTRAINT TRIGGER apply_batch_changes_at_commit
AFTER INSERT ON messages.batch_change
DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION messages.apply_batch_changes_at_commit();
