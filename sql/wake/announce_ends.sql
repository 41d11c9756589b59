-- Tell those to whom the end of messages matters: who waits for it is rung, what comes after it hears of it when the transaction commits, and the
-- steps of what will never run again are forgotten (those of dead messages stay, for a redrive).
-- Called by: archive, after their rows are gone and only while the mark messages.awaited is up.
-- Above READ COMMITTED the snapshot may be older than an edge: there every end is left to the next tick.
-- Locks: as tell_waiters, and the rows of the steps.
CREATE OR REPLACE FUNCTION messages.tell_ended(p_ids bigint[], p_result text)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_blind boolean := current_setting('transaction_isolation') <> 'read committed';
  v_told  bigint[];
BEGIN
  PERFORM messages.tell_waiters(p_ids);
  IF p_result IN ('success', 'cancelled') THEN
    DELETE FROM messages.step AS s WHERE s.message_id = ANY (p_ids);
  END IF;
  v_told := ARRAY(
    SELECT e.id
    FROM unnest(p_ids) AS e (id)
    -- Not EXISTS: PostgreSQL 18 would read both tables whole once to know all that could be asked for, whatever its settings say.
    WHERE v_blind
      OR (SELECT true FROM messages.edge AS g WHERE g.predecessor_id = e.id LIMIT 1)
      OR (SELECT true FROM messages.parked AS k WHERE k.id = e.id));
  IF v_told <> '{}' THEN
    PERFORM messages.note_endings(v_told, p_result);
  END IF;
END
$$;
