-- Announce the end of messages: notify their waiters, record an end event for their successors, and delete the saved
-- steps of messages that never run again (those of dead messages stay for a redrive).
-- Called by: archive, after their rows are gone and only while the flag messages.awaited_flag is raised. Above READ
-- COMMITTED the snapshot may be older than a dependency: there every end is left to the next tick.
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
    -- EXISTS is not used: PostgreSQL 18 would read both tables whole once to know all that could be asked for, whatever
    -- its settings say.
    WHERE v_blind
      OR (SELECT true FROM messages.dependency AS g WHERE g.predecessor_id = e.id LIMIT 1)
      OR (SELECT true FROM messages.blocked_message AS k WHERE k.id = e.id));
  IF v_told <> '{}' THEN
    PERFORM messages.add_end_events(v_told, p_result);
  END IF;
END
$$;

-- NOTIFY settled, with the id of each, for the messages of a statement whose end a client waits for.
-- Called by: announce_ends, after their rows are gone and only while there may be waiters: see wait_for for why no
-- waiter is missed. Above READ COMMITTED the snapshot may be older than a waiter: then all are notified, and the
-- waiters are left to prune_waiters.
-- Locks: the waiters of these messages, which are deleted. Result: how many were notified.
CREATE OR REPLACE FUNCTION messages.notify_waiters(p_ids bigint[])
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_waited bigint[] := p_ids;
BEGIN
  IF current_setting('transaction_isolation') = 'read committed' THEN
    WITH announced AS (
      DELETE FROM messages.waiter AS w WHERE w.message_id = ANY (p_ids) RETURNING w.message_id
    )
    SELECT array_agg(t.message_id) INTO v_waited FROM announced AS t;
  END IF;
  IF cardinality(v_waited) > 0 THEN
    PERFORM messages.notify('settled', v_waited::text[]);
  END IF;
  RETURN coalesce(cardinality(v_waited), 0);
END
$$;
