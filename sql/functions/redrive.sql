-- Put dead messages back: each becomes a new message that knows its ancestor (redriven_from); the archive row stays as it is.
-- Called by: operators. Each dead message is redriven once: the primary key of redrive_log is the guard, so that a repeated
-- or concurrent call does nothing. A message whose key stands ready again is left dead; of several with one key the newest is put back.
-- Locks: the rows it inserts. Result: one row per message that was put back. The insert rings like every publish.
CREATE OR REPLACE FUNCTION messages.redrive(p_ids bigint[])
RETURNS TABLE (archived_id bigint, message_id bigint)
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
  WITH dead AS (
    SELECT a.*, rank() OVER (PARTITION BY a.topic, a.key ORDER BY a.id DESC) AS newest
    FROM messages.message_archive AS a
    WHERE a.id = ANY (p_ids)
      AND a.result NOT IN ('success', 'cancelled')
      AND NOT EXISTS (SELECT FROM messages.redrive_log AS r WHERE r.archived_id = a.id)
      AND NOT EXISTS (
        SELECT FROM messages.message AS m
        WHERE m.topic = a.topic AND m.key = a.key AND m.attempts = 0 AND m.claim_id IS NULL)
  ), logged AS (
    INSERT INTO messages.redrive_log (archived_id, message_id)
    SELECT d.id, nextval('messages.message_id_seq') FROM dead AS d WHERE d.key IS NULL OR d.newest = 1
    ON CONFLICT DO NOTHING
    RETURNING redrive_log.archived_id, redrive_log.message_id
  ), back AS (
    INSERT INTO messages.message
      (id, topic, channel, key, priority, payload, body, headers, state, max_attempts, original_topic, redriven_from)
    OVERRIDING SYSTEM VALUE
    SELECT l.message_id, d.topic, d.channel, d.key, d.priority, d.payload, d.body, d.headers, d.state, d.max_attempts, d.original_topic, d.id
    FROM logged AS l
    JOIN dead AS d ON d.id = l.archived_id
    RETURNING message.id, message.redriven_from
  )
  SELECT b.redriven_from, b.id FROM back AS b
$$;
