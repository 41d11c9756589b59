-- Settle: the attempts failed. While attempts are left the messages become ready again after a delay, else they are archived.
-- Called by: workers (p_result 'failed', or 'lock_expired' when an attempt overran its time) and messages.expire_locks.
-- p_delays: the handler's own wish; NULL = the topic's on_lock_expired_delay for 'lock_expired', else its backoff. Cut to 1000 years: one
-- time that cannot be stored must not fail the batch.
-- p_states: a new checkpoint; NULL keeps the old one, JSON null clears it.
-- Locks: the rows. Result: the ids whose lock was lost; nothing was changed for them.
CREATE OR REPLACE FUNCTION messages.retry(
  p_ids       bigint[],
  p_claim_ids bigint[],
  p_errors    text[],
  p_delays    interval[] DEFAULT NULL,
  p_states    jsonb[]    DEFAULT NULL,
  p_result    text       DEFAULT 'failed'
)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_again  bigint[];
  v_topics text[];
  v_due    timestamptz;
  v_over   bigint[];
  v_claims bigint[];
  v_errors text[];
BEGIN
  IF p_result NOT IN ('failed', 'lock_expired') THEN
    RAISE EXCEPTION 'result % of a retry is not failed or lock_expired', p_result USING ERRCODE = '22023';
  END IF;

  WITH ended AS (
    SELECT m.id, e.error, e.state, next.at AS available_at, policy.backoff,
           coalesce((m.history -> 0 ->> 'started')::timestamptz, m.locked_at) AS first_started
    FROM unnest(p_ids, p_claim_ids, p_errors, p_delays, p_states) AS e (id, claim_id, error, delay, state)
    JOIN messages.message AS m ON m.id = e.id AND m.claim_id = e.claim_id
    CROSS JOIN messages.topic AS d
    LEFT JOIN messages.topic AS t ON t.topic = m.topic
    CROSS JOIN LATERAL (
      SELECT coalesce(t.backoff, d.backoff) AS backoff,
             nullif(coalesce(m.max_attempts, t.max_attempts, d.max_attempts), 0) AS max_attempts,
             CASE WHEN p_result = 'lock_expired' THEN coalesce(t.on_lock_expired_delay, d.on_lock_expired_delay) END AS expired_delay
    ) AS policy
    CROSS JOIN LATERAL (
      SELECT coalesce(e.delay, policy.expired_delay, messages.backoff(policy.backoff, m.attempts, random())) AS wished
    ) AS delay
    CROSS JOIN LATERAL (SELECT v_now + greatest('0', least(delay.wished, '1000 years')) AS at) AS next
    WHERE d.topic = '*' AND (policy.max_attempts IS NULL OR m.attempts < policy.max_attempts)
    FOR UPDATE OF m
  ), again AS (
    UPDATE messages.message AS m
    SET claim_id = NULL, locked_by = NULL, locked_at = NULL, lock_expires_at = NULL,
        available_at = e.available_at,
        state = CASE WHEN e.state IS NULL THEN m.state ELSE nullif(e.state, 'null') END,
        history = messages.with_attempt(m.history, m.attempts, m.locked_by, m.locked_at, v_now, p_result, e.error)
    FROM ended AS e
    WHERE m.id = e.id
      AND (e.backoff ->> 'max_total' IS NULL OR e.available_at <= e.first_started + (e.backoff ->> 'max_total')::interval)
    RETURNING m.id, m.topic, m.available_at
  )
  SELECT coalesce(array_agg(a.id), '{}'), array_agg(DISTINCT a.topic), min(a.available_at)
  INTO v_again, v_topics, v_due
  FROM again AS a;

  IF v_topics IS NOT NULL THEN
    PERFORM messages.ring(v_topics, v_due);
  END IF;
  IF cardinality(v_again) = cardinality(p_ids) THEN
    RETURN '{}'::bigint[];
  END IF;

  SELECT array_agg(e.id), array_agg(e.claim_id), array_agg(e.error)
  INTO v_over, v_claims, v_errors
  FROM unnest(p_ids, p_claim_ids, p_errors) AS e (id, claim_id, error)
  WHERE e.id <> ALL (v_again);
  RETURN messages.lost(v_over, v_claims, messages.archive(v_over, v_claims, p_result, v_errors, NULL, NULL), p_result);
END
$$;
