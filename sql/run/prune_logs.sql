-- Delete the log lines of attempts of messages that have left the queue and the archive.
-- Called by: prune. Bounded: it checks p_limit rows and continues there the next time, in a cycle (the sequence
-- messages.attempt_log_cursor).
-- Locks: the rows it deletes, skipping those that others hold. Result: how many.
CREATE OR REPLACE FUNCTION messages.prune_logs(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_place bigint := coalesce(pg_sequence_last_value('messages.attempt_log_cursor'), 0);
  v_ids   bigint[];
  v_did   bigint;
BEGIN
  SELECT array_agg(DISTINCT l.message_id)
  INTO v_ids
  FROM (
    SELECT o.message_id FROM messages.attempt_log AS o WHERE o.message_id > v_place ORDER BY o.message_id LIMIT p_limit
  ) AS l;
  IF v_ids IS NULL AND v_place = 0 THEN
    RETURN 0;
  END IF;
  PERFORM setval('messages.attempt_log_cursor', coalesce((SELECT max(i.id) FROM unnest(v_ids) AS i (id)), 0));
  DELETE FROM messages.attempt_log AS l
  WHERE (l.message_id, l.claim_id) IN (
    SELECT o.message_id, o.claim_id
    FROM messages.attempt_log AS o
    WHERE o.message_id = ANY (v_ids)
      AND NOT EXISTS (SELECT FROM messages.message AS m WHERE m.id = o.message_id)
      AND NOT EXISTS (SELECT FROM messages.message_archive AS a WHERE a.id = o.message_id)
    FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
