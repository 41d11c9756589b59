-- Let what comes after these messages hear how they ended (their rows of messages.ending).
-- Called by: the trigger ended, when a transaction that ended messages commits, and follow_ends. p_limit: so many successors; the rest is left
-- to the tick. An end whose successors have all heard of it is forgotten.
-- A success, or any end where the successor says run, takes its edge away; any other end stays written on it; what was put back hands its edges
-- to the message that it became. What ended itself waits for nothing any more.
-- Locks: the parked rows, which guard the edges of theirs, in the order of their ids until the transaction ends; those that others hold are
-- waited for if p_wait (they hold them while they commit), else left to the tick. Result: how many parked rows it had.
CREATE OR REPLACE FUNCTION messages.pass_on(p_ids bigint[], p_wait boolean, p_limit bigint DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
  v_wanted bigint[];
  v_parked bigint[];
BEGIN
  v_wanted := ARRAY(
    SELECT k.id
    FROM (
      SELECT e.id
      FROM messages.ending AS n
      -- Bounded for each, so that it goes by the index even if one message has most of the edges there are.
      CROSS JOIN LATERAL (
        SELECT g.successor_id AS id
        FROM messages.edge AS g
        WHERE g.predecessor_id = n.id AND (g.died IS NULL OR n.result = 'redriven')
        ORDER BY g.successor_id
        LIMIT p_limit) AS e
      WHERE n.id = ANY (p_ids)
      UNION
      SELECT own.id FROM messages.parked AS own WHERE own.id = ANY (p_ids)
    ) AS k
    ORDER BY k.id
    LIMIT p_limit);
  IF p_wait THEN
    v_parked := ARRAY(SELECT k.id FROM messages.parked AS k WHERE k.id = ANY (v_wanted) ORDER BY k.id FOR UPDATE);
  ELSE
    v_parked := ARRAY(SELECT k.id FROM messages.parked AS k WHERE k.id = ANY (v_wanted) ORDER BY k.id FOR UPDATE SKIP LOCKED);
  END IF;

  -- From here on each statement sees what whoever held these rows before has committed.
  DELETE FROM messages.edge AS g
  USING messages.ending AS n, messages.parked AS k
  WHERE n.id = ANY (p_ids) AND g.predecessor_id = n.id AND g.successor_id = ANY (v_parked) AND k.id = g.successor_id
    AND (n.result = 'success' OR (k.after_failed = 'run' AND n.result <> 'redriven')
      -- Not EXISTS: PostgreSQL 18 would read both tables whole once to know all that could be asked for, whatever its settings say.
      OR (SELECT true FROM messages.redrive_log AS r JOIN messages.edge AS b ON b.predecessor_id = r.message_id
          WHERE r.archived_id = n.id AND b.successor_id = g.successor_id LIMIT 1));
  -- It may have ended already, if this was left to a tick: the next one looks.
  WITH handed AS (
    UPDATE messages.edge AS g
    SET predecessor_id = r.message_id, died = NULL
    FROM messages.ending AS n
    JOIN messages.redrive_log AS r ON r.archived_id = n.id
    WHERE n.id = ANY (p_ids) AND n.result = 'redriven' AND g.predecessor_id = n.id AND g.successor_id = ANY (v_parked)
    RETURNING g.successor_id
  )
  UPDATE messages.parked AS k SET look_at = messages.now(), seen_below = NULL FROM handed AS h WHERE k.id = h.successor_id;
  UPDATE messages.edge AS g
  SET died = n.result
  FROM messages.ending AS n
  WHERE n.id = ANY (p_ids) AND n.result NOT IN ('success', 'redriven') AND g.predecessor_id = n.id AND g.successor_id = ANY (v_parked);
  PERFORM messages.release_parked(v_parked);

  DELETE FROM messages.ending AS n
  WHERE n.id = ANY (p_ids)
    AND NOT EXISTS (SELECT FROM messages.parked AS k WHERE k.id = n.id)
    AND NOT EXISTS (SELECT FROM messages.edge AS g WHERE g.predecessor_id = n.id AND (g.died IS NULL OR n.result = 'redriven'));
  RETURN cardinality(v_parked);
END
$$;
