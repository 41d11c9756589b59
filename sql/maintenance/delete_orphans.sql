-- Delete the steps, lists of predecessors and log lines of messages that are neither live nor archived.
-- Called by: purge_archive_pages, purge_own and erase, which have just deleted the archive rows; prune_orphans.
-- Locks: the rows it deletes, skipping those that others hold: prune_orphans finds them later. Result: how many.
CREATE OR REPLACE FUNCTION messages.delete_orphans(p_ids bigint[])
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_did bigint;
  v_all bigint;
BEGIN
  DELETE FROM messages.step AS s
  WHERE s.ctid = ANY (ARRAY(
    SELECT o.ctid FROM messages.step AS o WHERE o.message_id = ANY (p_ids) FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_all = ROW_COUNT;
  DELETE FROM messages.predecessor_list AS p
  WHERE p.ctid = ANY (ARRAY(
    SELECT o.ctid FROM messages.predecessor_list AS o WHERE o.message_id = ANY (p_ids) FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_did = ROW_COUNT;
  v_all := v_all + v_did;
  DELETE FROM messages.attempt_log AS l
  WHERE l.ctid = ANY (ARRAY(
    SELECT o.ctid FROM messages.attempt_log AS o WHERE o.message_id = ANY (p_ids) FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_all + v_did;
END
$$;
