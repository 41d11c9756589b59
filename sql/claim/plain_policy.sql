-- The policy of a topic that limits no claim, with few reads: what most topics have.
-- Called by: claim. Locks: nothing. Result: as claim_policy, but limits and pauses are not read; is_plain: there are
-- none, for the topic as a whole or for its channels by default. (Limits of single channels have no part in claims
-- without channels.) A topic that messages.topic_state calls stopped is not plain; test_topic_state.py compares them.
-- In SQL without settings, so that it becomes part of its caller's statement.
CREATE OR REPLACE FUNCTION messages.plain_policy(p_topic text)
RETURNS TABLE (policy messages.policy, is_plain boolean)
LANGUAGE sql
STABLE
AS $$
  SELECT
    row(
      p_topic, nullif(coalesce(t.max_attempts, d.max_attempts), 0),
      coalesce(t.lock_duration, d.lock_duration), coalesce(t.timeout, d.timeout),
      NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, false, false, false)::messages.policy,
    NOT (coalesce(t.ordered, d.ordered)
      OR num_nonnulls(
        d.max_concurrency, d.worker_concurrency, d.dequeue_rate, d.channel_concurrency, d.channel_min_interval,
        d.paused_at, t.max_concurrency, t.worker_concurrency, t.dequeue_rate, t.channel_concurrency,
        t.channel_min_interval, t.paused_at) > 0
      OR EXISTS (SELECT FROM messages.breaker AS b WHERE b.topic = p_topic AND b.position = 'open'))
  FROM messages.inherited_policy AS d
  LEFT JOIN messages.topic AS t ON t.topic = p_topic
  WHERE d.topic = messages.inherits_from(p_topic)
$$;
