-- Unlock messages and hand their attempt back: nothing failed.
-- Called by: messages.release (p_outcome NULL: keeps its place in the queue) and messages.defer. By nobody outside.
-- A message with a key that would again be the one untried message of its key, while another one is ready or a newer one comes back
-- with it, gives way: it is archived as cancelled. One that commits in between is a unique violation: the caller tries again and finds it.
-- Times that cannot be stored are cut (to 1000 years from now, or to the years 1970 to 9000): one must not fail the batch.
-- Locks: the rows, then low_water of their topics in the order of its key. Result: the ids that were unlocked or gave way.
CREATE OR REPLACE FUNCTION messages.hand_back(
  p_ids bigint[], p_claim_ids bigint[], p_delays interval[], p_untils timestamptz[], p_states jsonb[], p_outcome text
)
RETURNS bigint[]
LANGUAGE plpgsql
AS $$
DECLARE
  v_now        timestamptz := messages.now();
  v_superseded bigint[];
  v_ids        bigint[];
  v_claims     bigint[];
  v_topics     text[];
  v_due        timestamptz;
BEGIN
  SELECT array_agg(u.id), array_agg(u.claim_id)
  INTO v_ids, v_claims
  FROM (
    SELECT m.id, m.claim_id, m.topic, m.key, rank() OVER (PARTITION BY m.topic, m.key ORDER BY m.id DESC) AS newest
    FROM unnest(p_ids, p_claim_ids) AS e (id, claim_id)
    JOIN messages.message AS m ON m.id = e.id AND m.claim_id = e.claim_id
    WHERE m.key IS NOT NULL AND m.attempts = 1
  ) AS u
  WHERE u.newest > 1 OR EXISTS (
    SELECT FROM messages.message AS ready
    WHERE ready.topic = u.topic AND ready.key = u.key AND ready.attempts = 0 AND ready.claim_id IS NULL);
  v_superseded := CASE WHEN v_ids IS NULL THEN '{}' ELSE messages.archive(
    v_ids, v_claims, 'cancelled',
    array_fill('superseded: a newer message with the same key is ready'::text, ARRAY[cardinality(v_ids)]), NULL, NULL) END;

  WITH unlocked AS (
    UPDATE messages.message AS m
    SET claim_id = NULL, locked_by = NULL, locked_at = NULL, lock_expires_at = NULL,
        attempts = m.attempts - 1,
        available_at = CASE
          WHEN p_outcome IS NULL THEN m.available_at
          WHEN e.until IS NOT NULL THEN greatest('1970-01-01 00:00+00', least(e.until, '9000-01-01 00:00+00'))
          ELSE v_now + greatest('0', least(coalesce(e.delay, '0'), '1000 years'))
        END,
        state = CASE WHEN e.state IS NULL THEN m.state ELSE nullif(e.state, 'null') END,
        history = CASE WHEN p_outcome IS NULL THEN m.history ELSE
                    messages.with_attempt(m.history, m.attempts, m.locked_by, m.locked_at, v_now, p_outcome, NULL) END
    FROM unnest(p_ids, p_claim_ids, p_delays, p_untils, p_states) AS e (id, claim_id, delay, until, state)
    WHERE m.id = e.id AND m.claim_id = e.claim_id
    RETURNING m.id, m.topic, m.priority, m.available_at
  ), lowered AS (
    UPDATE messages.low_water AS w
    SET at = u.available_at
    FROM (SELECT u.topic, u.priority, min(u.available_at) AS available_at FROM unlocked AS u GROUP BY 1, 2 ORDER BY 1, 2) AS u
    WHERE w.topic = u.topic AND w.priority = u.priority AND w.at > u.available_at
  )
  SELECT coalesce(array_agg(u.id), '{}'), array_agg(DISTINCT u.topic), min(u.available_at)
  INTO v_ids, v_topics, v_due
  FROM unlocked AS u;

  IF v_topics IS NOT NULL THEN
    PERFORM messages.ring(v_topics, v_due);
  END IF;
  RETURN v_ids || v_superseded;
END
$$;
