-- Delete the rows of a side table whose message has left the queue and the archive: with a day that was dropped, or by
-- other means than delete_orphans.
-- Called by: prune. p_table: step, predecessor_list or attempt_log. Bounded: it checks p_limit rows, up to ten times as
-- many as long as it finds some, and continues there the next time, in a cycle (the sequence <p_table>_cursor), which
-- maintain_partitions begins again when it drops a day: the oldest rows are the ones that are left behind.
-- Locks: the rows it deletes, skipping those that others hold. Result: how many.
CREATE OR REPLACE FUNCTION messages.prune_orphans(p_table text, p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_cursor regclass := format('messages.%I', p_table || '_cursor');
  v_place  bigint   := coalesce(pg_sequence_last_value(v_cursor), 0);
  v_ids    bigint[];
  v_did    bigint;
  v_all    bigint   := 0;
BEGIN
  FOR v_batch IN 1..10 LOOP
    EXECUTE format(
      'SELECT array_agg(DISTINCT r.message_id) FROM ('
      'SELECT o.message_id FROM messages.%I AS o WHERE o.message_id > $1 ORDER BY o.message_id LIMIT $2) AS r', p_table)
    INTO v_ids USING v_place, p_limit;
    EXIT WHEN v_ids IS NULL AND v_place = 0;
    v_place := coalesce(v_ids[cardinality(v_ids)], 0);
    PERFORM setval(v_cursor, v_place);
    EXECUTE format(
      'DELETE FROM messages.%1$I AS r WHERE r.ctid = ANY (ARRAY('
      'SELECT o.ctid FROM messages.%1$I AS o WHERE o.message_id = ANY ($1) '
      'AND NOT EXISTS (SELECT FROM messages.message AS m WHERE m.id = o.message_id) '
      'AND NOT EXISTS (SELECT FROM messages.message_archive AS a WHERE a.id = o.message_id) '
      'FOR UPDATE SKIP LOCKED))', p_table)
    USING v_ids;
    GET DIAGNOSTICS v_did = ROW_COUNT;
    v_all := v_all + v_did;
    EXIT WHEN v_did = 0;
  END LOOP;
  RETURN v_all;
END
$$;
