-- Delete rows of keys that are not throttled any more.
-- Called by: prune. p_limit: how many rows are looked at; those that are still throttled are looked at again after the
-- same time.
-- Locks: the rows that it looks at, skipping those that another session is taking over. Result: how many were deleted.
CREATE OR REPLACE FUNCTION messages.prune_throttles(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_each record;
  v_did  bigint := 0;
BEGIN
  FOR v_each IN
    SELECT t.topic, t.key, t.throttle, messages.is_throttled(t.taken, t.throttle) AS is_throttled
    FROM (
      SELECT k.topic, k.key, k.throttle, k AS taken FROM messages.throttled_key AS k
      WHERE k.check_at <= (SELECT messages.now()) ORDER BY k.check_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) AS t
  LOOP
    IF v_each.is_throttled THEN
      UPDATE messages.throttled_key AS k SET check_at = messages.now() + greatest(v_each.throttle, '1 minute')
      WHERE k.topic = v_each.topic AND k.key = v_each.key;
    ELSE
      DELETE FROM messages.throttled_key AS k WHERE k.topic = v_each.topic AND k.key = v_each.key;
      v_did := v_did + 1;
    END IF;
  END LOOP;
  RETURN v_did;
END
$$;
