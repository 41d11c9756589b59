-- Settles attempts that failed. Messages that have attempts left, and for which the backoff's `max_total` has not
-- passed, become ready again after a delay; the others are archived.
--
-- A message with a key is archived as `cancelled` if a newer message with its key is ready and `key_on_retry` is
-- `supersede`. (A newer message that is blocked, perhaps by this very message, is not ready.) With `strict_lock` an
-- expired lock is lost, except for the result `lock_expired`.
--
-- Arguments: `p_errors`: the reasons. `p_delays`: how long to wait, at most 1,000 years (a longer delay is cut to
-- that); NULL = the topic's `lock_expired_delay` if the result is `lock_expired` and the topic has one, otherwise the
-- `backoff` of the message, or else of the topic. `p_states`: a checkpoint for the next attempt; NULL keeps the old
-- one, JSON `null` clears it. `p_result`: `failed`, or `lock_expired` when the attempt exceeded its time; the message
-- is archived with this result if this was the last attempt.
-- Result: the ids whose lock was lost; nothing was changed for them.
-- Errors: 22023 if `p_result` is neither.
-- Locks: the rows in the order of their ids, until the transaction ends; it waits for a transaction that settles them,
-- or that stores a step of them, since the next attempt must see it. In an ordered topic also marks of
-- `messages.low_water`.
-- Called by: workers (`p_result` 'failed', or 'lock_expired' when an attempt exceeded its time), and expire_locks.
-- Inside: A delay is cut because one time that cannot be stored must not fail the batch.
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
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_back   record;
  v_again  bigint[];
  v_over   bigint[];
  v_claims bigint[];
  v_errors text[];
BEGIN
  IF p_result NOT IN ('failed', 'lock_expired') THEN
    RAISE EXCEPTION 'result % of a retry is not failed or lock_expired', p_result USING ERRCODE = '22023';
  END IF;

  WITH ended AS (
    SELECT m.id, e.error, e.state, next.at AS available_at, policy.backoff, policy.ordered,
           coalesce((m.history -> 0 ->> 'started')::timestamptz, m.locked_at) AS first_started,
           m.key IS NOT NULL AND EXISTS (
             SELECT FROM messages.message AS ready
             WHERE ready.topic = m.topic AND ready.key = m.key AND ready.attempts = 0 AND ready.claim_id IS NULL
               AND ready.id > m.id
               AND NOT EXISTS (SELECT FROM messages.blocked_message AS k WHERE k.id = ready.id)
           ) AND messages.key_on_retry(m.topic) = 'supersede' AS is_superseded
    FROM (
      SELECT e.*
      FROM unnest(p_ids, p_claim_ids, p_errors, p_delays, p_states) AS e (id, claim_id, error, delay, state)
      ORDER BY e.id
    ) AS e
    JOIN messages.message AS m ON m.id = ANY (ARRAY[e.id]) AND (m.claim_id = e.claim_id) IS TRUE
    JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(m.topic)
    LEFT JOIN messages.topic AS t ON t.topic = m.topic
    CROSS JOIN LATERAL (
      SELECT coalesce(m.backoff, t.backoff, d.backoff) AS backoff,
             nullif(coalesce(m.max_attempts, t.max_attempts, d.max_attempts), 0) AS max_attempts,
             m.channel IS NOT NULL AND coalesce(t.ordered, d.ordered) AS ordered,
             CASE
               WHEN p_result = 'lock_expired' THEN coalesce(t.lock_expired_delay, d.lock_expired_delay)
             END AS expired_delay
    ) AS policy
    CROSS JOIN LATERAL (
      SELECT coalesce(
        e.delay, policy.expired_delay, messages.backoff_delay(policy.backoff, m.attempts, random())) AS wished
    ) AS delay
    CROSS JOIN LATERAL (SELECT v_now + greatest('0', least(delay.wished, '1000 years')) AS at) AS next
    WHERE (m.lock_expires_at > v_now OR p_result = 'lock_expired' OR NOT messages.has_strict_lock(m.topic))
      AND (policy.max_attempts IS NULL OR m.attempts < policy.max_attempts)
    FOR UPDATE OF m
  ), again AS (
    UPDATE messages.message AS m
    SET claim_id = NULL, locked_by = NULL, locked_at = NULL, lock_expires_at = NULL,
        -- In an ordered channel it keeps its place, and the channel waits for it.
        available_at = CASE WHEN e.ordered THEN m.available_at ELSE e.available_at END,
        state = CASE WHEN e.state IS NULL THEN m.state ELSE nullif(e.state::messages.given_json, 'null') END,
        history = messages.append_attempt(m.history, m.attempts, m.locked_by, m.locked_at, v_now, p_result, e.error,
                                        CASE WHEN m.prefetched IS NOT TRUE THEN m.runs END)
    FROM ended AS e
    WHERE m.id = ANY (ARRAY[e.id]) AND NOT e.is_superseded
      AND (e.backoff ->> 'max_total' IS NULL
        OR e.available_at <= e.first_started + (e.backoff ->> 'max_total')::interval)
    RETURNING m.id, m.topic, m.channel, m.available_at, e.available_at AS due, e.ordered
  )
  SELECT coalesce(array_agg(a.id), '{}') AS ids, array_agg(a.topic::text) AS topics, min(a.due) AS due,
         bit_or(messages.policy_topic_bit(a.topic)) AS bits,
         array_agg((a.topic, a.channel, a.id, a.due)::messages.channel_block) FILTER (WHERE a.ordered) AS blocks,
         array_agg((a.topic, -1, a.available_at)::messages.low_water) FILTER (WHERE a.ordered) AS places,
         (SELECT array_agg(e.id) FROM ended AS e WHERE e.is_superseded) AS superseded
  INTO v_back
  FROM again AS a;
  v_again := v_back.ids;

  IF v_back.blocks IS NOT NULL THEN
    PERFORM messages.lower_low_water(v_back.places);
    PERFORM messages.hold_ordered_channels(v_back.blocks);
  END IF;
  IF v_back.topics IS NOT NULL THEN
    PERFORM messages.notify_topics(ARRAY(SELECT DISTINCT t.topic FROM unnest(v_back.topics) AS t (topic)), v_back.due);
  END IF;
  IF messages.may_have_policies(v_back.bits) THEN
    PERFORM messages.count_breaker_attempts(v_back.topics, false);
  END IF;
  IF v_back.superseded IS NOT NULL THEN
    SELECT v_again || messages.archive(
      array_agg(e.id), array_agg(e.claim_id), 'cancelled',
      array_agg('superseded: a newer message with the same key is ready; ' || coalesce(e.error, p_result)), NULL, NULL)
    INTO v_again
    FROM unnest(p_ids, p_claim_ids, p_errors) AS e (id, claim_id, error)
    -- IS TRUE: not a join, which would compare each with each where hash joins are off.
    WHERE (e.id IN (SELECT s.id FROM unnest(v_back.superseded) AS s (id))) IS TRUE;
  END IF;
  IF cardinality(v_again) = cardinality(p_ids) THEN
    RETURN '{}'::bigint[];
  END IF;

  SELECT array_agg(e.id), array_agg(e.claim_id), array_agg(e.error)
  INTO v_over, v_claims, v_errors
  FROM unnest(p_ids, p_claim_ids, p_errors) AS e (id, claim_id, error)
  WHERE e.id NOT IN (SELECT a.id FROM unnest(v_again) AS a (id));
  RETURN messages.lost_ids(
    v_over, v_claims, messages.archive(v_over, v_claims, p_result, v_errors, NULL, NULL), p_result);
END
$$;
