-- Find what messages that come after others have not heard: an end that was committed between the look of their publisher and his commit, an end
-- above READ COMMITTED, and what a settle left to the tick because it was much, or because somebody held it.
-- Called by: tick, as the first: a new one is looked at by each tick until no transaction is left that may have ended one of those before it
-- without seeing it, and to know these its own number must be drawn after it has seen the new one. p_new: those that the caller has seen so
-- (new_parked), before it locked a row, which draws the number. Then once in an hour. One of which neither is anything live nor in the archive succeeded and was not kept.
-- A stamp that no transaction here can have drawn came with a restore from another cluster: such a one is new.
-- Ends that concern nobody (above READ COMMITTED all are noted) are forgotten first, so that the others need not wait for their turn behind them.
-- Locks: the parked rows and those of messages.ending, skipping those that others hold. Bounded: p_limit messages that wait, and the edges of
-- ten times as many; as many ends are looked through for those that concern nobody. Result: how many messages were looked at, and ends passed on.
CREATE OR REPLACE FUNCTION messages.follow_ends(p_limit integer DEFAULT 1000, p_new bigint[] DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
  v_now    timestamptz;
  v_new    bigint[] := coalesce(p_new, messages.new_parked(p_limit));
  v_parked bigint[];
  v_ended  bigint[];
  v_below  xid8;
  v_oldest xid8;
BEGIN
  IF NOT EXISTS (SELECT FROM messages.parked) AND NOT EXISTS (SELECT FROM messages.ending) THEN
    RETURN 0;
  END IF;
  -- Who draws a higher number does so after this, and sees those. (The end of a snapshot would not do: what is above it may be running already.)
  -- Also before the clock is read: a message that is released must not seem older than its transaction, or claims look for it too late.
  v_below := pg_current_xact_id();
  v_now := messages.now();
  -- What this transaction ends by itself waits for nobody, see the trigger ended.
  PERFORM set_config('messages.passed_on', '1', true);
  v_parked := ARRAY(
    SELECT k.id FROM messages.parked AS k
    WHERE k.look_at <= v_now AND k.id = ANY (ARRAY(
      SELECT w.id
      FROM (
        SELECT d.id, sum(d.width) OVER (ORDER BY d.look_at, d.id) - d.width AS before
        FROM (SELECT o.id, o.width, o.look_at FROM messages.parked AS o WHERE o.look_at <= v_now ORDER BY o.look_at LIMIT p_limit) AS d
      ) AS w
      WHERE w.before < 10 * p_limit))
    ORDER BY k.id
    FOR UPDATE SKIP LOCKED);

  -- Below it every transaction has ended, and the next statement sees what it did.
  v_oldest := pg_snapshot_xmin(pg_current_snapshot());
  INSERT INTO messages.ending (id, result)
  SELECT DISTINCT g.predecessor_id,
         CASE WHEN r.archived_id IS NOT NULL THEN 'redriven'
              ELSE coalesce((SELECT a.result FROM messages.message_archive AS a WHERE a.id = g.predecessor_id LIMIT 1), 'success') END
  FROM messages.edge AS g
  LEFT JOIN messages.redrive_log AS r ON r.archived_id = g.predecessor_id
  WHERE g.successor_id = ANY (v_parked) AND (g.died IS NULL OR r.archived_id IS NOT NULL)
    AND NOT EXISTS (SELECT FROM messages.message AS m WHERE m.id = g.predecessor_id)
  ON CONFLICT DO NOTHING;
  UPDATE messages.parked AS k
  SET look_at = v_now + CASE WHEN k.seen_below <= v_oldest THEN interval '1 hour' ELSE '0' END,
      seen_below = CASE WHEN k.id = ANY (v_new) THEN v_below ELSE k.seen_below END
  WHERE k.id = ANY (v_parked);
  PERFORM messages.release_parked(v_parked);

  DELETE FROM messages.ending AS n
  WHERE n.id = ANY (ARRAY(
    SELECT o.id
    FROM (SELECT e.id, e.result FROM messages.ending AS e ORDER BY e.id LIMIT 10 * p_limit FOR UPDATE SKIP LOCKED) AS o
    WHERE NOT EXISTS (SELECT FROM messages.parked AS k WHERE k.id = o.id)
      AND NOT EXISTS (SELECT FROM messages.edge AS g WHERE g.predecessor_id = o.id AND (g.died IS NULL OR o.result = 'redriven'))));
  v_ended := ARRAY(SELECT n.id FROM messages.ending AS n ORDER BY n.id LIMIT p_limit FOR UPDATE SKIP LOCKED);
  PERFORM messages.pass_on(v_ended, false, p_limit) WHERE v_ended <> '{}';
  RETURN cardinality(v_parked) + cardinality(v_ended);
END
$$;
