-- Announce the end of messages: notify their waiters, record an end event for their successors, and delete the saved steps of messages that
-- never run again (those of dead messages stay for a redrive).
-- Called by: archive, after their rows are gone and only while the flag messages.awaited_flag is raised. Above READ COMMITTED the snapshot
-- may be older than a dependency: there every end is left to the next tick.
-- Locks: as notify_waiters, and the rows of the steps.
CREATE OR REPLACE FUNCTION messages.announce_ends(p_ids bigint[], p_result text)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
  v_blind boolean := current_setting('transaction_isolation') <> 'read committed';
  v_told  bigint[];
BEGIN
  PERFORM messages.notify_waiters(p_ids);
  IF p_result IN ('success', 'cancelled') THEN
    DELETE FROM messages.step AS s WHERE s.message_id = ANY (p_ids);
  END IF;
  v_told := ARRAY(
    SELECT e.id
    FROM unnest(p_ids) AS e (id)
    -- Not EXISTS: PostgreSQL 18 would read both tables whole once to know all that could be asked for, whatever its settings say.
    WHERE v_blind
      OR (SELECT true FROM messages.dependency AS g WHERE g.predecessor_id = e.id LIMIT 1)
      OR (SELECT true FROM messages.blocked_message AS k WHERE k.id = e.id));
  IF v_told <> '{}' THEN
    PERFORM messages.add_end_events(v_told, p_result);
  END IF;
END
$$;
