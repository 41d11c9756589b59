-- Extends locks to `p_lock_duration` from now (NULL = the topic's `lock_duration`), and never moves the end of a lock
-- to an earlier time. A lock that has expired, but whose attempt has not been ended yet, is extended as well; with
-- `strict_lock` it is lost.
--
-- Result: the ids whose lock was lost: stop working on them.
-- Errors: 22023 if `p_lock_duration` is not between 0 and 7 days.
-- Locks: the rows, without waiting: a row that is being settled at this moment is skipped, and not reported as lost. An
-- open transaction around `messages.save_step` or `messages.wait_for` does not delay heartbeats.
-- Repeat: safe.
-- Called by: workers, in one statement for all messages that they hold, after each third of the lock's duration.
CREATE OR REPLACE FUNCTION messages.heartbeat(
  p_ids bigint[], p_claim_ids bigint[], p_lock_duration interval DEFAULT NULL
)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now timestamptz := messages.now();
BEGIN
  -- The table's CHECK does not do this: its error would show the row with its payload.
  IF p_lock_duration NOT BETWEEN '0' AND '7 days' THEN
    RAISE EXCEPTION 'lock_duration of a heartbeat is %', p_lock_duration
      USING ERRCODE = '22023', HINT = 'use an interval from 0 to 7 days';
  END IF;
  UPDATE messages.message AS m
  SET lock_expires_at = greatest(m.lock_expires_at, v_now + h.lock_duration)
  FROM (
    SELECT m.id, coalesce(p_lock_duration, t.lock_duration, d.lock_duration) AS lock_duration
    FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id)
    JOIN messages.message AS m ON m.id = ANY (ARRAY[e.id]) AND (m.claim_id = e.claim_id) IS TRUE
    JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(m.topic)
    LEFT JOIN messages.topic AS t ON t.topic = m.topic
    WHERE (m.lock_expires_at > v_now OR NOT messages.has_strict_lock(m.topic))
    FOR NO KEY UPDATE OF m SKIP LOCKED
  ) AS h
  WHERE m.id = ANY (ARRAY[h.id]);

  RETURN ARRAY(
    SELECT e.id
    FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id)
    WHERE NOT EXISTS (
      SELECT FROM messages.message AS m
      WHERE m.id = ANY (ARRAY[e.id]) AND (m.claim_id = e.claim_id) IS TRUE
        AND (m.lock_expires_at > v_now OR NOT messages.has_strict_lock(m.topic)))
  );
END
$$;
