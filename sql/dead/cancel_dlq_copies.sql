-- Cancel the copies in <topic>.dlq of dead messages that were put back, if the copies wait. A running copy is left to
-- its worker. A dead copy that was put back itself replaces its original from then on.
-- Called by: redrive_rows. Locks: the copies, skipping those that a session is claiming. Result: how many ended.
CREATE OR REPLACE FUNCTION messages.cancel_dlq_copies(p_ids bigint[])
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_copies bigint[];
  v_errors text[];
BEGIN
  UPDATE messages.dead_letter AS c
  SET message_id = m.id
  FROM messages.redrive_log AS r
  JOIN messages.message AS m ON m.id = ANY (ARRAY[r.message_id])
  WHERE r.archived_id = ANY (p_ids) AND m.dlq_moved_at IS NOT NULL AND c.origin_id = ANY (ARRAY[m.origin_id]);

  SELECT array_agg(m.id), array_agg(format('its original %s was put back as message %s', m.origin_id, m.new_id))
  INTO v_copies, v_errors
  FROM (
    SELECT m.id, m.origin_id, c.new_id
    FROM (
      SELECT c.message_id AS id, r.message_id AS new_id
      FROM messages.dead_letter AS c
      JOIN messages.redrive_log AS r ON r.archived_id = c.origin_id
      WHERE c.origin_id = ANY (p_ids)
      ORDER BY c.message_id
    ) AS c
    JOIN messages.message AS m ON m.id = ANY (ARRAY[c.id])
    WHERE m.claim_id IS NULL AND m.dlq_moved_at IS NOT NULL
    FOR UPDATE OF m SKIP LOCKED
  ) AS m;
  IF v_copies IS NULL THEN
    RETURN 0;
  END IF;
  RETURN cardinality(messages.archive(
    v_copies, NULL, 'cancelled', v_errors, NULL, messages.actor(), true));
END
$$;
