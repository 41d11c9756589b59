-- Merge the rows that count the dead messages of a topic and result into one. The sum stays the same.
-- Called by: purge. Bounded: at most p_limit rows. Locks: the rows it folds; those of another that folds are passed over.
-- Result: how many rows there are less.
CREATE OR REPLACE FUNCTION messages.merge_dead_counts(p_limit integer DEFAULT 10000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_did bigint;
BEGIN
  WITH picked AS MATERIALIZED (
    SELECT c.ctid AS place
    FROM messages.dead_count AS c
    WHERE (c.topic, c.result) IN (SELECT m.topic, m.result FROM messages.dead_count AS m GROUP BY m.topic, m.result HAVING count(*) > 1)
    LIMIT p_limit
    FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM messages.dead_count AS c
    WHERE c.ctid = ANY (ARRAY(SELECT p.place FROM picked AS p))
    RETURNING c.topic, c.result, c.count
  ), kept AS (
    INSERT INTO messages.dead_count (topic, result, count)
    SELECT g.topic, g.result, sum(g.count) FROM gone AS g GROUP BY g.topic, g.result
    RETURNING 1
  )
  SELECT (SELECT count(*) FROM gone) - (SELECT count(*) FROM kept) INTO v_did;
  RETURN v_did;
END
$$;
