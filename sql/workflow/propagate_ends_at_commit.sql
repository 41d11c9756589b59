-- When a transaction that ended messages commits, tell their successors: release them, cancel them, or record how the
-- predecessor ended. It runs at the commit, once for the whole transaction: so the rows that two settles may both need
-- are locked in one order, and no longer than a commit takes. Messages that this ends in turn (cancelled successors)
-- take a further round. Rounds after the first wait for no lock, and a transaction reaches about a thousand successors
-- (a round counts as at least ten); the tick does the rest (propagate_missed_ends). The tick also does the rest where a
-- session holds such a row for longer (a running tick, or an open publisher that replaced the message): no settle waits
-- long, or fails, because of others. The tick finds their rows of messages.end_event. Above READ COMMITTED it is all
-- left to the tick.
-- Locks: as propagate_ends, each waited for 200 ms at the most.
CREATE OR REPLACE FUNCTION messages.propagate_ends_at_commit()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_ids  bigint[] := string_to_array(nullif(current_setting('messages.end_events', true), ''), ',')::bigint[];
  v_done bigint   := coalesce(nullif(current_setting('messages.propagated', true), ''), '0')::bigint;
  v_wait text     := current_setting('lock_timeout');
BEGIN
  IF v_ids IS NULL OR v_done > 1000 OR current_setting('transaction_isolation') <> 'read committed' THEN
    RETURN NULL;
  END IF;
  PERFORM set_config('messages.end_events', '', true);
  -- If it is undone, so is the timeout.
  BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    v_done := v_done + greatest(10, messages.propagate_ends(v_ids, v_done = 0, 1001 - v_done));
    PERFORM set_config('lock_timeout', v_wait, true);
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    v_done := 1001;
  END;
  PERFORM set_config('messages.propagated', v_done::text, true);
  RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS ended ON messages.end_event;
CREATE CONSTRAINT TRIGGER propagate_ends_at_commit
AFTER INSERT OR UPDATE ON messages.end_event
DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION messages.propagate_ends_at_commit();
