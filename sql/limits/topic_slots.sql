-- Returns how many messages of a limited topic a claim may take now.
-- Called by: claim, only for topics with max_concurrency, worker_concurrency, dequeue_rate or a breaker that is not
-- closed. Locks: as lock_topic; a claim that does not get the topic leaves it to a later claim. Running messages are
-- counted each time: no counter can drift, and a dead worker frees its slots when its locks expire. All claim loops of
-- a worker share its slots. Result: slots: at most p_wanted;
-- look_again_at: where slots is 0, when to look again, NULL = not known.
CREATE OR REPLACE FUNCTION messages.topic_slots(
  p_policy messages.policy, p_worker text, p_wanted integer, OUT slots integer, OUT look_again_at timestamptz
)
LANGUAGE plpgsql
AS $$
DECLARE
  v_bound integer := least(p_policy.max_concurrency, p_policy.probes);
  v_own   integer;
BEGIN
  PERFORM messages.check_isolation(p_policy.topic);
  IF NOT messages.lock_topic(p_policy.topic) THEN
    slots := 0;
    look_again_at := messages.now();
    RETURN;
  END IF;

  slots := p_wanted;
  IF v_bound IS NOT NULL THEN
    -- No further than the bound: the count is never of more rows than may run.
    slots := least(slots, v_bound - (
      SELECT count(*) FROM (
        SELECT FROM messages.message AS m
        WHERE m.topic = p_policy.topic AND m.claim_id IS NOT NULL LIMIT v_bound) AS running)::integer);
  END IF;
  IF p_policy.worker_concurrency IS NOT NULL AND slots > 0 THEN
    v_own := coalesce(
      (SELECT (w.topic_concurrency ->> p_policy.topic)::integer FROM messages.worker AS w
       WHERE w.name = messages.worker_of(p_worker)),
      p_policy.worker_concurrency);
    slots := least(slots, v_own - (
      SELECT count(*) FROM (
        SELECT FROM messages.message AS m
        WHERE m.topic = p_policy.topic AND m.claim_id IS NOT NULL
          AND messages.worker_of(m.locked_by) = messages.worker_of(p_worker)
        LIMIT v_own) AS running)::integer);
  END IF;
  IF p_policy.probes IS NOT NULL AND slots > 0 THEN
    look_again_at := messages.no_probe_before(p_policy.topic);
    slots := CASE WHEN look_again_at IS NULL THEN slots ELSE 0 END;
  END IF;
  IF p_policy.dequeue_rate IS NOT NULL AND slots > 0 THEN
    SELECT least(topic_slots.slots, s.slots), s.next_at INTO topic_slots.slots, look_again_at
    FROM messages.rate_slots('dequeue', p_policy.topic, p_policy.dequeue_rate, p_policy.burst, messages.now()) AS s;
  END IF;
  slots := greatest(slots, 0);
END
$$;

-- Lock a limited topic, so that claims count it one after the other.
-- Called by: topic_slots. Locks: the topic's row of messages.mutex until the transaction ends. The first lock of a
-- transaction is waited for, about as long as a few claims take: a session that claims and does not commit must not
-- block the other topics of others. After the first, further locks are only tried, so that two claims never wait for
-- each other. Result: whether the lock was taken.
CREATE OR REPLACE FUNCTION messages.lock_topic(p_topic text)
RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
  IF NOT messages.lock_mutex(
    'topic', p_topic, CASE WHEN current_setting('messages.has_topic_lock', true) = 'yes' THEN NULL ELSE '250ms' END
  ) THEN
    RETURN false;
  END IF;
  PERFORM set_config('messages.has_topic_lock', 'yes', true);
  RETURN true;
END
$$;

-- Returns how many messages a rate permits now, and when to ask again if none.
-- Called by: topic_slots (which holds the topic's lock). Locks: the row, which charge_rate updates, only if free at
-- once: a transaction that changes a policy may hold it (clamp_rates), and may stay open. Then nothing is permitted,
-- and a claim asks again a second later. GCRA, the generic cell rate algorithm (ITU-T I.371): free_at is when the
-- bucket would be full again; each message moves it by 1 / rate, and it may lie burst / rate ahead of the clock.
-- next_at waits for a quarter of the burst, so that a high rate does not cost a claim per message.
CREATE OR REPLACE FUNCTION messages.rate_slots(
  p_kind text, p_topic text, p_rate double precision, p_burst integer, p_now timestamptz, OUT slots integer,
  OUT next_at timestamptz
)
LANGUAGE plpgsql
AS $$
DECLARE
  v_free_at timestamptz;
  v_ahead_s double precision;
BEGIN
  SELECT r.free_at INTO v_free_at
  FROM messages.rate AS r WHERE r.kind = p_kind AND r.topic = p_topic AND r.channel = ''
  FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND AND EXISTS (
    SELECT FROM messages.rate AS r WHERE r.kind = p_kind AND r.topic = p_topic AND r.channel = ''
  ) THEN
    slots := 0;
    next_at := p_now + interval '1 s';
    RETURN;
  END IF;
  v_ahead_s := greatest(0, extract(epoch FROM v_free_at - p_now));
  -- A microsecond is the clock's grain: without it 0.1 s of ten messages a second would be 0.999999 of one.
  slots := floor(p_burst - coalesce(v_ahead_s, 0) * p_rate + 1e-6 * p_rate + 1e-9)::integer;
  next_at := p_now + make_interval(secs => greatest(0, v_ahead_s - (p_burst - greatest(1, p_burst / 4)) / p_rate));
END
$$;

-- Returns the time at which a topic whose breaker is open may be probed, if that is not now.
-- Called by: topic_slots, after it has counted the running probes. Locks: nothing. Result: NULL = now, or the breaker
-- has closed. A probe may have ended since the claim read the policy. If the count did not see it, its settle has
-- committed, and with it one of two: the breaker's new state, or, where another session was updating that, a row that
-- is counted with the next settle or tick.
CREATE OR REPLACE FUNCTION messages.no_probe_before(p_topic text)
RETURNS timestamptz
LANGUAGE plpgsql
STABLE
AS $$
BEGIN
  RETURN greatest(
    (SELECT b.probe_at FROM messages.breaker AS b WHERE b.topic = p_topic AND b.probe_at > messages.now()),
    (SELECT messages.now() + interval '1 s' FROM messages.breaker_count AS c WHERE c.topic = p_topic LIMIT 1));
END
$$;
