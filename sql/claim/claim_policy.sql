-- The policy in force for one topic, as far as a claim needs it.
-- Called by: claim, next_due, once for each topic of their walk. Locks: nothing.
-- stopped_until: the topic (or '*') is paused, or its breaker is open; 'infinity' = until it is resumed. probes: how
-- many messages the breaker lets run to test whether they succeed again. is_limited: the topic as a whole has a limit;
-- limits_channels: some of its channels have. stopped_until or probes is set where messages.topic_state says stopped,
-- which costs more; test_topic_state.py compares them.
CREATE OR REPLACE FUNCTION messages.claim_policy(p_topic text, p_now timestamptz)
RETURNS messages.policy
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_policy messages.policy;
BEGIN
  SELECT
    p_topic,
    nullif(coalesce(t.max_attempts, d.max_attempts), 0),
    coalesce(t.lock_duration, d.lock_duration),
    coalesce(t.timeout, d.timeout),
    greatest(
      CASE WHEN t.paused_at IS NOT NULL THEN coalesce(t.resume_at, 'infinity') END,
      CASE WHEN d.paused_at IS NOT NULL THEN coalesce(d.resume_at, 'infinity') END,
      CASE WHEN b.position = 'open' THEN b.probe_at END),
    nullif(coalesce(t.max_concurrency, d.max_concurrency), 0),
    nullif(coalesce(t.worker_concurrency, d.worker_concurrency), 0),
    nullif(coalesce(t.dequeue_rate, d.dequeue_rate), 0),
    -- A tenth of a second's worth: less, and what is lost between two claims is lost for good.
    coalesce(t.burst, d.burst, greatest(1, ceil(coalesce(t.dequeue_rate, d.dequeue_rate) / 10))::integer),
    CASE WHEN b.position = 'open' THEN coalesce((coalesce(t.breaker, d.breaker) ->> 'probes')::integer, 1) END,
    nullif(coalesce(t.channel_concurrency, d.channel_concurrency), 0),
    nullif(coalesce(t.channel_min_interval, d.channel_min_interval), '0'),
    coalesce(t.ordered, d.ordered),
    false,
    EXISTS (
      SELECT FROM messages.channel AS c
      WHERE c.topic = p_topic
        AND (num_nonnulls(c.concurrency, c.min_interval) > 0 OR messages.is_paused(c.paused_at, c.resume_at, p_now)))
  INTO v_policy
  FROM messages.inherited_policy AS d
  LEFT JOIN messages.topic AS t ON t.topic = p_topic
  LEFT JOIN messages.breaker AS b ON b.topic = p_topic AND coalesce(t.breaker, d.breaker) IS NOT NULL
  WHERE d.topic = messages.inherits_from(p_topic);

  v_policy.stopped_until := CASE WHEN v_policy.stopped_until > p_now THEN v_policy.stopped_until END;
  v_policy.is_limited :=
    num_nonnulls(v_policy.max_concurrency, v_policy.worker_concurrency, v_policy.dequeue_rate, v_policy.probes) > 0;
  v_policy.limits_channels := v_policy.limits_channels OR v_policy.ordered
    OR num_nonnulls(v_policy.channel_concurrency, v_policy.channel_min_interval) > 0;
  RETURN v_policy;
END
$$;
