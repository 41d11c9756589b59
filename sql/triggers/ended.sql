-- When a transaction that ended messages commits, what comes after them hears of it: released, cancelled, or told for what it waits.
-- At the commit, and all of a transaction at once: so the rows that two settles may both need are taken in one order, and held no longer than a
-- commit takes. What that ends in turn (successors that are cancelled) is a further round; rounds after the first wait for nobody, and a
-- transaction passes on to about a thousand successors: the tick goes on (follow_ends).
-- Above READ COMMITTED it is all left to the tick.
-- Locks: as pass_on.
CREATE OR REPLACE FUNCTION messages.ended()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  v_ids  bigint[] := string_to_array(nullif(current_setting('messages.endings', true), ''), ',')::bigint[];
  v_done bigint   := coalesce(nullif(current_setting('messages.passed_on', true), ''), '0')::bigint;
BEGIN
  IF v_ids IS NULL OR v_done > 1000 OR current_setting('transaction_isolation') <> 'read committed' THEN
    RETURN NULL;
  END IF;
  PERFORM set_config('messages.endings', '', true);
  v_done := v_done + messages.pass_on(v_ids, v_done = 0, 1001 - v_done);
  PERFORM set_config('messages.passed_on', greatest(v_done, 1)::text, true);
  RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS ended ON messages.ending;
CREATE CONSTRAINT TRIGGER ended
AFTER INSERT OR UPDATE ON messages.ending
DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION messages.ended();
