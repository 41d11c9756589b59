-- Correct the counters of topics with max_depth: rows may have been deleted by hand, and a limit that was set while
-- older transactions ran did not see what those inserted. Unused counters are deleted with their changes. Publishers
-- apply pending changes; here it is done where ten or more changes are pending.
-- Called by: tick. p_share: a random part of all counters; p_limit: topics with more messages are not counted, since
-- that would take too long. A counter or its changes follow in the transactions that insert and end messages. So in one
-- snapshot they agree with the rows, whatever is running, and a difference is added without blocking others. Locks: the
-- rows that it changes. Result: how many were corrected or deleted.
CREATE OR REPLACE FUNCTION messages.recount_depth(p_share double precision DEFAULT 0.1, p_limit bigint DEFAULT 200000)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_each record;
  v_did  bigint := 0;
BEGIN
  PERFORM messages.create_depths();
  FOR v_each IN
    -- count_live is STABLE: it counts in the snapshot that has read the counter.
    SELECT k.*,
           CASE WHEN k.is_drawn AND k.rows <= p_limit AND NOT k.is_over THEN messages.count_live(k.topic) - k.rows
             ELSE 0 END AS missing
    FROM (
      SELECT d.topic, d.is_drawn, d.rows + coalesce(c.change, 0) AS rows, coalesce(c.pending, 0) AS pending,
             a.max_depth IS NULL AS is_over
      FROM (SELECT d.topic, d.rows, random() < p_share AS is_drawn FROM messages.depth AS d) AS d
      LEFT JOIN (
        SELECT c.topic, sum(c.change)::bigint AS change, count(*) AS pending
        FROM messages.depth_change AS c GROUP BY c.topic
      ) AS c ON c.topic = d.topic
      CROSS JOIN LATERAL messages.publish_policy(d.topic) AS a
      WHERE d.is_drawn OR c.pending >= 10
    ) AS k
    ORDER BY k.topic
  LOOP
    CONTINUE WHEN v_each.missing = 0 AND v_each.pending < 10 AND NOT v_each.is_over;
    -- The tick does not wait here: it has locked messages, and the holder of a counter may wait for these.
    PERFORM FROM messages.depth AS d WHERE d.topic = v_each.topic FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    PERFORM messages.apply_depth_changes(v_each.topic);
    IF v_each.is_over THEN
      DELETE FROM messages.depth AS d WHERE d.topic = v_each.topic;
    ELSIF v_each.missing <> 0 THEN
      UPDATE messages.depth AS d SET rows = greatest(0, d.rows + v_each.missing) WHERE d.topic = v_each.topic;
    END IF;
    v_did := v_did + (v_each.missing <> 0 OR v_each.is_over)::integer;
  END LOOP;
  RETURN v_did;
END
$$;
