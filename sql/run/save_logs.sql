-- Stores the log lines of attempts that end, for others to see: in `messages.attempt_log`. They stay as long as the
-- message, live or archived; those of the last 20 claims of a message are kept.
--
-- Call it in a separate transaction, before the settle: in that of the settle it would lock rows in another order.
--
-- Arguments: `p_lines`: the last lines of each attempt; of more than 262144 characters the end is kept. `p_left_out`:
-- how many lines before them are left out; NULL = none.
-- Result: the ids whose lock was lost; nothing was stored for them. A message that has ended as `success` under this
-- claim, by a handler that completes it itself, is not lost. With `strict_lock`, an expired lock is lost too.
-- Errors: none. If they cannot be stored, because the disk is full or a lock is not free within a second, it is a
-- WARNING: no settle waits for them.
-- Locks: the messages, in the order of their ids, until the transaction ends.
-- Repeat: safe: the first lines of a claim stay.
-- Called by: daemons, for topics with `log_bytes`, before the settle.
CREATE OR REPLACE FUNCTION messages.save_logs(
  p_ids bigint[], p_claim_ids bigint[], p_lines text[], p_left_out bigint[] DEFAULT NULL
)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
SET lock_timeout = '1s'
AS $$
DECLARE
  v_kept bigint[];
BEGIN
  BEGIN
    WITH given AS (
      SELECT e.id, e.claim_id, right(e.lines, 262144) AS lines, coalesce(greatest(e.left_out, 0), 0) AS left_out
      FROM unnest(p_ids, p_claim_ids, p_lines, p_left_out) AS e (id, claim_id, lines, left_out)
      WHERE e.lines IS NOT NULL
    ), held AS (
      SELECT g.*, m.attempts, m.locked_at
      FROM (SELECT o.* FROM given AS o ORDER BY o.id) AS g
      JOIN messages.message AS m ON m.id = ANY (ARRAY[g.id]) AND (m.claim_id = g.claim_id) IS TRUE
      WHERE m.lock_expires_at > messages.now() OR NOT messages.has_strict_lock(m.topic)
      FOR NO KEY UPDATE OF m
    ), completed AS (
      SELECT g.*, a.attempts, a.locked_at
      FROM given AS g
      CROSS JOIN LATERAL (
        SELECT o.attempts, o.locked_at
        FROM messages.message_archive AS o
        WHERE o.id = ANY (ARRAY[g.id]) AND o.claim_id = g.claim_id AND o.result = 'success'
        OFFSET 0) AS a
      WHERE g.id NOT IN (SELECT h.id FROM held AS h)
    ), kept AS (
      INSERT INTO messages.attempt_log (message_id, claim_id, attempt, locked_at, lines, left_out)
      SELECT f.id, f.claim_id, f.attempts, f.locked_at, f.lines, f.left_out
      FROM (SELECT h.* FROM held AS h UNION ALL SELECT c.* FROM completed AS c) AS f
      ON CONFLICT DO NOTHING
    )
    SELECT array_agg(f.id)
    INTO v_kept
    FROM (SELECT h.id FROM held AS h UNION ALL SELECT c.id FROM completed AS c) AS f;

    DELETE FROM messages.attempt_log AS l
    USING (
      SELECT o.message_id, o.claim_id
      FROM unnest(v_kept) AS e (id)
      CROSS JOIN LATERAL (
        SELECT i.message_id, i.claim_id
        FROM messages.attempt_log AS i
        WHERE i.message_id = ANY (ARRAY[e.id])
        ORDER BY i.kept_at DESC, i.claim_id DESC
        OFFSET 20) AS o
    ) AS old
    WHERE l.message_id = ANY (ARRAY[old.message_id]) AND l.claim_id = old.claim_id;

    RETURN ARRAY(
      SELECT e.id FROM unnest(p_ids) AS e (id) WHERE e.id NOT IN (SELECT k.id FROM unnest(v_kept) AS k (id)));
  EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'the log lines of % attempts were not stored: %', cardinality(p_ids), SQLERRM;
    RETURN '{}'::bigint[];
  END;
END
$$;
