-- Delete what side tables have of messages whose archive rows the caller has just deleted: steps, lists of
-- predecessors, log lines. prune_orphans finds the rest.
-- Called by: purge_archive_pages, purge_own, erase. Locks: the rows it deletes.
CREATE OR REPLACE FUNCTION messages.delete_orphans(p_ids bigint[])
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  DELETE FROM messages.step AS s WHERE s.message_id = ANY (p_ids);
  DELETE FROM messages.predecessor_list AS p WHERE p.message_id = ANY (p_ids);
  DELETE FROM messages.attempt_log AS l WHERE l.message_id = ANY (p_ids);
END
$$;
