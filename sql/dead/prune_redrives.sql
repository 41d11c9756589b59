-- Delete the log of redrives and of dead-letter copies, once the messages have left the archive and the copies are
-- gone. It checks the archive itself: rows that an export holds back outlive every retention, and must not be put back
-- a second time.
-- Called by: purge. Bounded: p_limit rows of each table, the log's among twice as many. Locks: the rows it deletes.
-- Result: how many.
CREATE OR REPLACE FUNCTION messages.prune_redrives(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  -- A day is dropped once all of it is too old: two more days are on the safe side.
  v_before timestamptz := messages.now() - (SELECT max(t.retention) FROM messages.topic AS t) - interval '2 days';
  v_did    bigint;
  v_all    bigint;
BEGIN
  DELETE FROM messages.redrive_log AS r
  WHERE r.archived_id IN (
    SELECT o.archived_id
    FROM (
      (
        SELECT e.archived_id, e.redriven_at FROM messages.redrive_log AS e
        WHERE e.redriven_at < v_before ORDER BY e.redriven_at LIMIT p_limit)
      UNION
      -- It begins anywhere among them: those that must stay for long should not hide the others behind them.
      (SELECT e.archived_id, e.redriven_at
       FROM messages.redrive_log AS e
       WHERE e.redriven_at < v_before
         AND e.redriven_at >= (
           SELECT min(f.redriven_at) + random() * (max(f.redriven_at) - min(f.redriven_at))
           FROM messages.redrive_log AS f WHERE f.redriven_at < v_before)
       ORDER BY e.redriven_at
       LIMIT p_limit)
    ) AS o
    WHERE NOT EXISTS (SELECT FROM messages.message_archive AS a WHERE a.id = o.archived_id)
      AND NOT EXISTS (
        SELECT FROM messages.dead_letter AS c JOIN messages.message AS m ON m.id = c.message_id
        WHERE c.origin_id = o.archived_id)
    LIMIT p_limit);
  GET DIAGNOSTICS v_all = ROW_COUNT;

  -- From anywhere among those: copies that wait for long must not hide the others behind them.
  DELETE FROM messages.dead_letter AS c
  WHERE c.origin_id IN (
      SELECT o.origin_id
      FROM messages.dead_letter AS o
      WHERE o.made_at < v_before
        AND o.made_at >= (
          SELECT min(f.made_at) + random() * (max(f.made_at) - min(f.made_at)) FROM messages.dead_letter AS f
          WHERE f.made_at < v_before)
      ORDER BY o.made_at
      LIMIT p_limit)
    AND NOT EXISTS (SELECT FROM messages.message AS m WHERE m.id = c.message_id);
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_all + v_did;
END
$$;
