-- Merge the rows that count the dead messages of a topic and result: one for each ten minutes of the last day, and one
-- for all before. The sums stay the same.
-- Called by: purge. Bounded: at most p_limit rows. Locks: the rows it folds; those of another that folds are passed
-- over.
-- Result: how many rows there are less.
CREATE OR REPLACE FUNCTION messages.merge_dead_counts(p_limit integer DEFAULT 10000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  -- An hour more than stats looks back, so that clocks of several servers may differ.
  v_from timestamptz := messages.now() - interval '25 hours';
  v_did  bigint;
BEGIN
  WITH picked AS MATERIALIZED (
    SELECT c.ctid AS place
    FROM (
      SELECT d.ctid, d.died_at,
             count(*) OVER (PARTITION BY d.topic, d.result, CASE WHEN d.died_at >= v_from THEN d.died_at END) AS alike
      FROM messages.dead_count AS d) AS k
    JOIN messages.dead_count AS c ON c.ctid = k.ctid
    WHERE k.alike > 1 OR k.died_at < v_from
    LIMIT p_limit
    FOR UPDATE OF c SKIP LOCKED
  ), gone AS (
    DELETE FROM messages.dead_count AS c
    WHERE c.ctid = ANY (ARRAY(SELECT p.place FROM picked AS p))
    RETURNING c.topic, c.result, c.count, c.redriven, CASE WHEN c.died_at >= v_from THEN c.died_at END AS died_at
  ), kept AS (
    INSERT INTO messages.dead_count (topic, result, count, redriven, died_at)
    SELECT g.topic, g.result, sum(g.count), sum(g.redriven), g.died_at
    FROM gone AS g GROUP BY g.topic, g.result, g.died_at
    RETURNING 1
  )
  SELECT (SELECT count(*) FROM gone) - (SELECT count(*) FROM kept) INTO v_did;
  RETURN v_did;
END
$$;
