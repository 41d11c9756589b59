-- Delete the steps, lists of predecessors and log lines of messages that have left the queue and the archive: with a
-- day that was dropped, or by other means than those that call delete_orphans.
-- Called by: prune. Bounded: it checks p_limit messages, up to ten times as many as long as it finds some, and
-- continues there the next time, in a cycle (the sequence messages.orphan_cursor). maintain_partitions begins the cycle
-- again when it drops a day: the oldest rows are the ones that are left behind.
-- Locks: the rows it deletes. Result: how many.
CREATE OR REPLACE FUNCTION messages.prune_orphans(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_place bigint := coalesce(pg_sequence_last_value('messages.orphan_cursor'), 0);
  v_ids   bigint[];
  v_did   bigint;
  v_all   bigint := 0;
BEGIN
  FOR v_batch IN 1..10 LOOP
    v_ids := ARRAY(
      SELECT u.id
      FROM (
        (SELECT s.message_id AS id FROM messages.step AS s WHERE s.message_id > v_place
         ORDER BY s.message_id LIMIT p_limit)
        UNION
        (SELECT p.message_id FROM messages.predecessor_list AS p WHERE p.message_id > v_place
         ORDER BY p.message_id LIMIT p_limit)
        UNION
        (SELECT l.message_id FROM messages.attempt_log AS l WHERE l.message_id > v_place
         ORDER BY l.message_id LIMIT p_limit)
      ) AS u
      ORDER BY u.id
      LIMIT p_limit);
    EXIT WHEN v_ids = '{}' AND v_place = 0;
    v_place := coalesce(v_ids[cardinality(v_ids)], 0);
    PERFORM setval('messages.orphan_cursor', v_place);
    v_did := messages.delete_orphans(ARRAY(
      SELECT i.id
      FROM unnest(v_ids) AS i (id)
      WHERE NOT EXISTS (SELECT FROM messages.message AS m WHERE m.id = i.id)
        AND NOT EXISTS (SELECT FROM messages.message_archive AS a WHERE a.id = i.id)));
    EXIT WHEN v_did = 0;
    v_all := v_all + v_did;
  END LOOP;
  RETURN v_all;
END
$$;
