-- Tell the successors of these messages how they ended (their rows of messages.end_event).
-- Called by: the trigger propagate_ends_at_commit, when a transaction that ended messages commits, and
-- propagate_missed_ends. p_limit: at most this many successors; the rest is left to the tick. An end that reached all
-- its successors is deleted. A success, or any end if the successor has after_failed = run, removes the dependency; any
-- other end is stored in it; a redriven message passes its dependencies to the message that it became. A successor that
-- ended itself waits for nothing.
-- Locks: the rows of messages.blocked_message, which guard their dependencies, in the order of their ids until the
-- transaction ends; those that others hold are waited for if p_wait (they hold them while they commit), else left to
-- the tick. Result: how many of these rows it locked.
CREATE OR REPLACE FUNCTION messages.propagate_ends(p_ids bigint[], p_wait boolean, p_limit bigint DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_wanted bigint[];
  v_parked bigint[];
BEGIN
  v_wanted := ARRAY(
    SELECT k.id
    FROM (
      SELECT e.id
      FROM messages.end_event AS n
      -- Bounded for each, so that it goes by the index even if one message has most of the edges there are.
      CROSS JOIN LATERAL (
        SELECT g.successor_id AS id
        FROM messages.dependency AS g
        WHERE g.predecessor_id = n.id AND (g.failed_result IS NULL OR n.result = 'redriven')
        ORDER BY g.successor_id
        LIMIT p_limit) AS e
      WHERE n.id = ANY (p_ids)
      UNION
      SELECT own.id FROM messages.blocked_message AS own WHERE own.id = ANY (p_ids)
    ) AS k
    ORDER BY k.id
    LIMIT p_limit);
  IF p_wait THEN
    v_parked := ARRAY(
      SELECT k.id FROM messages.blocked_message AS k WHERE k.id = ANY (v_wanted) ORDER BY k.id FOR UPDATE);
  ELSE
    v_parked := ARRAY(
      SELECT k.id FROM messages.blocked_message AS k WHERE k.id = ANY (v_wanted) ORDER BY k.id FOR UPDATE SKIP LOCKED);
  END IF;

  -- From here on each statement sees what anyone who held these rows before has committed.
  DELETE FROM messages.dependency AS g
  USING messages.ended_dependencies(p_ids, v_parked) AS d
  WHERE g.predecessor_id = d.predecessor_id AND g.successor_id = d.successor_id
    AND (d.result = 'success' OR (d.after_failed = 'run' AND d.result <> 'redriven')
      -- EXISTS is not used: PostgreSQL 18 would read both tables whole once to know all that could be asked for,
      -- whatever its settings say.
      OR (SELECT true FROM messages.redrive_log AS r JOIN messages.dependency AS b ON b.predecessor_id = r.message_id
          WHERE r.archived_id = d.predecessor_id AND b.successor_id = d.successor_id LIMIT 1));
  -- It may have ended already, if this was left to a tick: the next one looks.
  WITH handed AS (
    UPDATE messages.dependency AS g
    SET predecessor_id = r.message_id, failed_result = NULL
    FROM messages.ended_dependencies(p_ids, v_parked) AS d
    JOIN messages.redrive_log AS r ON r.archived_id = d.predecessor_id
    WHERE d.result = 'redriven' AND g.predecessor_id = d.predecessor_id AND g.successor_id = d.successor_id
    RETURNING g.successor_id
  )
  UPDATE messages.blocked_message AS k SET check_at = messages.now(), checked_below = NULL FROM handed AS h
  WHERE k.id = h.successor_id;
  UPDATE messages.dependency AS g
  SET failed_result = d.result
  FROM messages.ended_dependencies(p_ids, v_parked) AS d
  WHERE d.result NOT IN ('success', 'redriven') AND g.predecessor_id = d.predecessor_id
    AND g.successor_id = d.successor_id;
  PERFORM messages.resolve_blocked(v_parked);

  DELETE FROM messages.end_event AS n
  WHERE n.id = ANY (p_ids)
    AND NOT EXISTS (SELECT FROM messages.blocked_message AS k WHERE k.id = n.id)
    AND NOT EXISTS (
      SELECT FROM messages.dependency AS g
      WHERE g.predecessor_id = n.id AND (g.failed_result IS NULL OR n.result = 'redriven'));
  RETURN cardinality(v_parked);
END
$$;

-- The dependencies of some blocked messages on some ends, with what decides about them.
-- Called by: propagate_ends. Locks: nothing. From each end to its dependencies, never from a blocked message, which may
-- have 100,000 others: OFFSET keeps the planner from turning this round.
CREATE OR REPLACE FUNCTION messages.ended_dependencies(p_ids bigint[], p_successors bigint[])
RETURNS TABLE (predecessor_id bigint, successor_id bigint, result text, after_failed text)
LANGUAGE sql
STABLE
AS $$
  SELECT n.id, e.successor_id, n.result, k.after_failed
  FROM messages.end_event AS n
  CROSS JOIN LATERAL (
    SELECT g.successor_id FROM messages.dependency AS g
    WHERE g.predecessor_id = n.id AND g.successor_id = ANY (p_successors) OFFSET 0) AS e
  JOIN messages.blocked_message AS k ON k.id = e.successor_id
  WHERE n.id = ANY (p_ids)
$$;
