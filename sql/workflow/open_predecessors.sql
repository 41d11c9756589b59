-- Returns the given predecessors that a new message has to wait for: those that have not succeeded.
-- Called by: publish. Locks: nothing, so that no settle waits for the publisher; the tick finds what ends after this
-- (propagate_missed_ends). A predecessor that was redriven is replaced by the message that it became. Result: id, and
-- failed_result: how it ended; NULL = it has not.
-- Errors: 22023 for an invalid list, PGR08 for an id that is neither live nor in the archive.
CREATE OR REPLACE FUNCTION messages.open_predecessors(p_ids bigint[])
RETURNS TABLE (id bigint, failed_result text)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_each    record;
  v_highest bigint := coalesce(pg_sequence_last_value('messages.message_id_seq'), 0);
BEGIN
  IF cardinality(p_ids) > 100000 THEN
    RAISE EXCEPTION 'publish: after has % messages', cardinality(p_ids)
      USING ERRCODE = '22023',
        HINT = 'use at most 100000; more are gathered by messages between, each of which comes after a part of them';
  END IF;
  FOR v_each IN
    WITH RECURSIVE line AS (
      SELECT i.id AS asked, i.id, 0 AS place FROM (SELECT DISTINCT a.id FROM unnest(p_ids) AS a (id)) AS i
      UNION ALL
      SELECT l.asked, r.message_id, l.place + 1
      FROM line AS l
      JOIN messages.redrive_log AS r ON r.archived_id = l.id
      WHERE l.place < 100
    ), latest AS (
      SELECT DISTINCT ON (l.asked) l.asked, l.id FROM line AS l ORDER BY l.asked, l.place DESC
    )
    SELECT l.asked, l.id,
           CASE
             WHEN EXISTS (SELECT FROM messages.message AS m WHERE m.id = l.id) THEN 'live'
             ELSE (SELECT a.result FROM messages.message_archive AS a WHERE a.id = l.id LIMIT 1)
           END AS state
    FROM latest AS l
    ORDER BY l.id
  LOOP
    IF v_each.state IS NULL THEN
      RAISE EXCEPTION 'publish: there is no message % to come after: %', coalesce(v_each.asked::text, 'NULL'),
        CASE WHEN v_each.asked BETWEEN 1 AND v_highest
          THEN 'it is neither live nor in the archive (it succeeded and nothing of it is kept, its retention is over, '
            'or its publish is not committed)'
          ELSE format('it was never published, the highest id so far is %s', v_highest) END
        USING ERRCODE = 'PGR08', HINT = 'leave it out if it is done';
    END IF;
    CONTINUE WHEN v_each.state = 'success' OR v_each.id = open_predecessors.id;
    open_predecessors.id := v_each.id;
    failed_result := nullif(v_each.state, 'live');
    RETURN NEXT;
  END LOOP;
END
$$;
