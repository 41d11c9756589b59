-- Extend locks: to lock_duration from now, never to an earlier time.
-- Called by: workers, one statement for all messages in flight, after a third of the lock duration.
-- p_lock_duration: as given to the claim, at most 7 days; NULL = the topic's lock_duration.
-- An expired lock that was not ended yet is extended too, but with strict_lock it is lost.
-- Locks: the rows, without waiting: a row that is being settled needs no longer lock. An open transaction that saves a step of the message,
-- or waits for it, does not block heartbeats.
-- Result: the ids whose lock was lost.
CREATE OR REPLACE FUNCTION messages.heartbeat(p_ids bigint[], p_claim_ids bigint[], p_lock_duration interval DEFAULT NULL)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now timestamptz := messages.now();
BEGIN
  -- Not left to the table's CHECK: its error would show the row with its payload.
  IF p_lock_duration NOT BETWEEN '0' AND '7 days' THEN
    RAISE EXCEPTION 'lock_duration of a heartbeat is %', p_lock_duration USING ERRCODE = '22023', HINT = 'use an interval from 0 to 7 days';
  END IF;
  UPDATE messages.message AS m
  SET lock_expires_at = greatest(m.lock_expires_at, v_now + h.lock_duration)
  FROM (
    SELECT m.id, coalesce(p_lock_duration, t.lock_duration, d.lock_duration) AS lock_duration
    FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id)
    JOIN messages.message AS m ON m.id = e.id AND m.claim_id = e.claim_id
    CROSS JOIN messages.topic AS d
    LEFT JOIN messages.topic AS t ON t.topic = m.topic
    WHERE d.topic = '*' AND (m.lock_expires_at > v_now OR NOT messages.has_strict_lock(m.topic))
    FOR NO KEY UPDATE OF m SKIP LOCKED
  ) AS h
  WHERE m.id = h.id;

  RETURN ARRAY(
    SELECT e.id
    FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id)
    WHERE NOT EXISTS (
      SELECT FROM messages.message AS m
      WHERE m.id = e.id AND m.claim_id = e.claim_id AND (m.lock_expires_at > v_now OR NOT messages.has_strict_lock(m.topic)))
  );
END
$$;
