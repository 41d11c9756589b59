-- Ends the attempts whose lock expired, as `messages.retry` with the result `lock_expired` does: the message becomes
-- ready again while attempts are left, otherwise it is archived.
--
-- Result: how many locks had expired.
-- Errors: none.
-- Locks: the rows, skipping those that another transaction settles or extends right now, and those for which an open
-- transaction stores a step: the next attempt should see that step.
-- Called by: tick.
-- Inside: The locked rows are few; this reads all of them by their index. lock_expires_at itself is in no index, so
-- that heartbeats stay HOT.
CREATE OR REPLACE FUNCTION messages.expire_locks(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_ids    bigint[];
  v_claims bigint[];
  v_errors text[];
BEGIN
  SELECT array_agg(e.id), array_agg(e.claim_id), array_agg(e.error)
  INTO v_ids, v_claims, v_errors
  FROM (
    SELECT m.id, m.claim_id,
           format(
             'lock_expired: %s held it from %s and did not settle it before %s',
             m.locked_by, m.locked_at, m.lock_expires_at) AS error
    FROM messages.message AS m
    WHERE m.claim_id IS NOT NULL AND m.lock_expires_at < v_now
    LIMIT p_limit
    FOR UPDATE SKIP LOCKED
  ) AS e;
  IF v_ids IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM messages.retry(v_ids, v_claims, v_errors, NULL, NULL, 'lock_expired');
  RETURN cardinality(v_ids);
END
$$;
