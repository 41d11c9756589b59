-- Put the counters of topics with max_depth right: rows may have been deleted by hand, and a limit that was set while older transactions
-- ran did not see what those inserted. A counter that nothing asks for any more is forgotten.
-- Called by: tick. p_share: of all counters, drawn by lot; p_limit: topics with more messages are not counted, that would take too long.
-- A counter changes in the transactions that insert and end messages. So in one snapshot it agrees with the rows, whatever is under way,
-- and a difference is added while others go on. Locks: the rows that are wrong. Result: how many were put right or forgotten.
CREATE OR REPLACE FUNCTION messages.recount_depth(p_share double precision DEFAULT 0.1, p_limit bigint DEFAULT 200000)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
  v_each record;
  v_did  bigint := 0;
BEGIN
  FOR v_each IN
    -- count_rows is STABLE: it counts in the snapshot that has read the counter.
    SELECT d.topic, messages.count_rows(d.topic) - d.rows AS missing, a.max_depth IS NULL AS is_over
    FROM messages.depth AS d
    CROSS JOIN LATERAL messages.admission(d.topic) AS a
    WHERE random() < p_share AND d.rows <= p_limit
    ORDER BY d.topic
  LOOP
    -- Not waited for: a tick has locked messages that others may hold up a counter for.
    PERFORM FROM messages.depth AS d WHERE d.topic = v_each.topic FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    IF v_each.is_over THEN
      DELETE FROM messages.depth AS d WHERE d.topic = v_each.topic;
    ELSE
      CONTINUE WHEN v_each.missing = 0;
      UPDATE messages.depth AS d SET rows = greatest(0, d.rows + v_each.missing) WHERE d.topic = v_each.topic;
    END IF;
    v_did := v_did + 1;
  END LOOP;
  RETURN v_did;
END
$$;
