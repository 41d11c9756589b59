-- Delete the lists of predecessors of messages that have left the queue and the archive.
-- Called by: prune. Bounded: it checks p_limit lists and continues there the next time, in a cycle (the sequence
-- messages.predecessor_cursor).
-- Locks: the rows it deletes, skipping those that others hold. Result: how many.
CREATE OR REPLACE FUNCTION messages.prune_predecessors(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_place bigint := coalesce(pg_sequence_last_value('messages.predecessor_cursor'), 0);
  v_ids   bigint[] := ARRAY(
    SELECT o.message_id FROM messages.predecessor_list AS o
    WHERE o.message_id > v_place ORDER BY o.message_id LIMIT p_limit);
  v_did   bigint;
BEGIN
  IF v_ids = '{}' AND v_place = 0 THEN
    RETURN 0;
  END IF;
  PERFORM setval('messages.predecessor_cursor', coalesce((SELECT max(i.id) FROM unnest(v_ids) AS i (id)), 0));
  DELETE FROM messages.predecessor_list AS p
  WHERE p.message_id IN (
    SELECT o.message_id
    FROM messages.predecessor_list AS o
    WHERE o.message_id = ANY (v_ids)
      AND NOT EXISTS (SELECT FROM messages.message AS m WHERE m.id = o.message_id)
      AND NOT EXISTS (SELECT FROM messages.message_archive AS a WHERE a.id = o.message_id)
    FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
