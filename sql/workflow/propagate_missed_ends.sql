-- Finds ends that were not passed on to the messages that come after them: an end that was committed between the check
-- of their publisher and the publisher's commit; an end above READ COMMITTED; an end whose statement had too many
-- successors; an end whose successor another transaction held. Ends without successors are deleted first, up to ten
-- times `p_limit` of them, so that the others need not wait behind them. The next tick finds each missed end, as long
-- as no more than `p_limit` messages are due to be checked; the end of a transaction that was still open at the check
-- is found by the first tick after that transaction ended. Every other waiting message is checked once an hour.
--
-- Result: how many messages were looked at, and ends passed on.
-- Errors: none.
-- Locks: rows of `messages.blocked_message` and `messages.end_event`, skipping those that others hold.
-- Called by: tick, as its first task.
-- Inside: Each tick checks a newly blocked message until no transaction is left that may have ended a predecessor
-- without seeing the new row; to know that, the tick must draw its transaction id after it saw the row. p_new: the rows
-- that the caller saw in this way (new_blocked), before it locked a row, which draws the id. A predecessor that is
-- neither live nor archived succeeded and was not kept. A transaction id that this cluster has not reached came with a
-- restore from another cluster: such a row is treated as new.
CREATE OR REPLACE FUNCTION messages.propagate_missed_ends(p_limit integer DEFAULT 1000, p_new bigint[] DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now    timestamptz;
  v_new    bigint[] := coalesce(p_new, messages.new_blocked(p_limit));
  v_parked bigint[];
  v_ended  bigint[];
  v_below  xid8;
  v_oldest xid8;
BEGIN
  IF NOT EXISTS (SELECT FROM messages.blocked_message) AND NOT EXISTS (SELECT FROM messages.end_event) THEN
    RETURN 0;
  END IF;
  -- A transaction that draws a higher number does so after this, and sees those. (The end of a snapshot would not do:
  -- what is above it may be running already.) Also before the clock is read: a message that is released must not seem
  -- older than its transaction, or claims look for it too late.
  v_below := pg_current_xact_id();
  v_now := messages.now();
  -- An end by this transaction itself needs no wait, see the trigger propagate_ends_at_commit.
  PERFORM set_config('messages.propagated', '1', true);
  v_parked := ARRAY(
    SELECT k.id FROM messages.blocked_message AS k
    WHERE k.check_at <= v_now AND k.id = ANY (ARRAY(
      SELECT w.id
      FROM (
        SELECT d.id, sum(d.width) OVER (ORDER BY d.check_at, d.id) - d.width AS before
        FROM (
          SELECT o.id, o.width, o.check_at FROM messages.blocked_message AS o
          WHERE o.check_at <= v_now ORDER BY o.check_at LIMIT p_limit
        ) AS d
      ) AS w
      WHERE w.before < 10 * p_limit))
    ORDER BY k.id
    FOR UPDATE SKIP LOCKED);

  -- Below it every transaction has ended, and the next statement sees what it did.
  v_oldest := pg_snapshot_xmin(pg_current_snapshot());
  INSERT INTO messages.end_event (id, result)
  SELECT DISTINCT g.predecessor_id,
         CASE WHEN r.archived_id IS NOT NULL THEN 'redriven'
              ELSE coalesce(
                (SELECT a.result FROM messages.message_archive AS a WHERE a.id = g.predecessor_id LIMIT 1), 'success'
              ) END
  FROM messages.dependency AS g
  LEFT JOIN messages.redrive_log AS r ON r.archived_id = g.predecessor_id
  WHERE g.successor_id = ANY (v_parked) AND (g.failed_result IS NULL OR r.archived_id IS NOT NULL)
    AND NOT EXISTS (SELECT FROM messages.message AS m WHERE m.id = g.predecessor_id)
  ON CONFLICT DO NOTHING;
  UPDATE messages.blocked_message AS k
  SET check_at = v_now + CASE WHEN k.checked_below <= v_oldest THEN interval '1 hour' ELSE '0' END,
      checked_below = CASE WHEN k.id = ANY (v_new) THEN v_below ELSE k.checked_below END
  WHERE k.id = ANY (v_parked);
  PERFORM messages.resolve_blocked(v_parked);

  DELETE FROM messages.end_event AS n
  WHERE n.id = ANY (ARRAY(
    SELECT o.id
    FROM (
      SELECT e.id, e.result FROM messages.end_event AS e ORDER BY e.id LIMIT 10 * p_limit FOR UPDATE SKIP LOCKED
    ) AS o
    WHERE NOT EXISTS (SELECT FROM messages.blocked_message AS k WHERE k.id = o.id)
      AND NOT EXISTS (
        SELECT FROM messages.dependency AS g
        WHERE g.predecessor_id = o.id AND (g.failed_result IS NULL OR o.result = 'redriven'))));
  v_ended := ARRAY(SELECT n.id FROM messages.end_event AS n ORDER BY n.id LIMIT p_limit FOR UPDATE SKIP LOCKED);
  PERFORM messages.propagate_ends(v_ended, false, p_limit) WHERE v_ended <> '{}';
  RETURN cardinality(v_parked) + cardinality(v_ended);
END
$$;
