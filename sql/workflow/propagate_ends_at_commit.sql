-- When a transaction that ended messages commits, what comes after them hears of it: released, cancelled, or told for what it waits.
-- At the commit, and all of a transaction at once: so the rows that two settles may both need are taken in one order, and held no longer than a
-- commit takes. What that ends in turn (successors that are cancelled) is a further round; rounds after the first wait for nobody, and a
-- transaction passes on to about a thousand successors, a round counting as ten at least: the tick goes on (follow_ends).
-- It goes on too where somebody holds such a row for longer (a tick at work, a publisher who replaces one under its key and stays open): no
-- settle waits long for others, or fails for them. Their rows of messages.ending are what the tick finds.
-- Above READ COMMITTED it is all left to the tick.
-- Locks: as pass_on, each waited for 200 ms at the most.
CREATE OR REPLACE FUNCTION messages.ended()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  v_ids  bigint[] := string_to_array(nullif(current_setting('messages.endings', true), ''), ',')::bigint[];
  v_done bigint   := coalesce(nullif(current_setting('messages.passed_on', true), ''), '0')::bigint;
  v_wait text     := current_setting('lock_timeout');
BEGIN
  IF v_ids IS NULL OR v_done > 1000 OR current_setting('transaction_isolation') <> 'read committed' THEN
    RETURN NULL;
  END IF;
  PERFORM set_config('messages.endings', '', true);
  -- If it is undone, so is the timeout.
  BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    v_done := v_done + greatest(10, messages.pass_on(v_ids, v_done = 0, 1001 - v_done));
    PERFORM set_config('lock_timeout', v_wait, true);
  EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    v_done := 1001;
  END;
  PERFORM set_config('messages.passed_on', v_done::text, true);
  RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS ended ON messages.ending;
CREATE CONSTRAINT TRIGGER ended
AFTER INSERT OR UPDATE ON messages.ending
DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION messages.ended();
