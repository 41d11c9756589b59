-- Delete waiting messages without a trace: end them with messages.archive, then delete their archive rows.
-- Called by: delete, purge_topic. p_ids: rows that the caller has locked and that no worker has claimed.
-- Waiters and successors see the message as cancelled. Locks: none beyond the caller's. Result: the ids that were
-- deleted.
CREATE OR REPLACE FUNCTION messages.erase(p_ids bigint[])
RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
  v_ids bigint[];
BEGIN
  v_ids := messages.archive(
    p_ids, NULL, 'cancelled', array_fill('deleted'::text, ARRAY[cardinality(p_ids)]),
    NULL, messages.actor(), true);
  DELETE FROM messages.message_archive AS a
  WHERE a.id = ANY (v_ids) AND a.archived_at = pg_catalog.now() AND a.result = 'cancelled';
  PERFORM messages.delete_orphans(v_ids);
  RETURN v_ids;
END
$$;
