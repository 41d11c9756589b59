-- Finds the limit of its topic that a ready message waits for: max_concurrency, worker_concurrency, the probes of a
-- breaker or dequeue_rate.
-- Called by: explain_waiting. Locks: nothing. Result: as explain. Slot holders: the first 20, as worker and message;
-- full workers: the first 20.
CREATE OR REPLACE FUNCTION messages.explain_limit(p_topic text, p_policy messages.policy, p_now timestamptz)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_limit integer := least(p_policy.max_concurrency, p_policy.probes);
  v_held  jsonb;
  v_free  timestamptz;
  v_from  text := messages.pattern_that_sets(p_topic, 'max_concurrency');
BEGIN
  IF v_limit IS NOT NULL THEN
    v_held := messages.slot_holders(p_topic, NULL, v_limit);
  END IF;
  IF v_held IS NOT NULL THEN
    code := CASE WHEN v_limit = p_policy.probes THEN 'probing' ELSE 'topic_full' END;
    reason := format(
      CASE code WHEN 'probing' THEN 'the breaker of topic %s lets %s run to see whether things are well again: %s'
                ELSE 'topic %s has reached its limit of %s%s; running on %s' END,
      VARIADIC ARRAY[p_topic, v_limit::text]
        || CASE code WHEN 'topic_full' THEN ARRAY[coalesce(', which ' || v_from || ' sets', '')] END
        || messages.format_slot_holders(v_held));
    detail := jsonb_build_object('limit', v_limit, 'held', v_held)
      || CASE WHEN v_from IS NULL THEN '{}' ELSE jsonb_build_object('set_by', v_from) END;
    RETURN NEXT;
  END IF;
  IF p_policy.worker_concurrency IS NOT NULL THEN
    v_held := messages.full_workers(p_topic, p_policy.worker_concurrency);
  END IF;
  IF p_policy.worker_concurrency IS NOT NULL AND v_held IS NOT NULL THEN
    v_from := messages.pattern_that_sets(p_topic, 'worker_concurrency');
    code := 'worker_full';
    reason := format(
      'topic %s has reached its limit of %s per worker%s; running on %s%s', p_topic, p_policy.worker_concurrency,
      coalesce(', which ' || v_from || ' sets', ''),
      (SELECT string_agg(format('%s (%s)', w.full ->> 'worker', w.full ->> 'limit'), ', ' ORDER BY w.n)
       FROM jsonb_array_elements(v_held) WITH ORDINALITY AS w ("full", n)
       WHERE w.n <= 3),
      CASE WHEN jsonb_array_length(v_held) > 3 THEN ', ...' ELSE '' END);
    detail := jsonb_build_object('limit', p_policy.worker_concurrency, 'workers', v_held)
      || CASE WHEN v_from IS NULL THEN '{}' ELSE jsonb_build_object('set_by', v_from) END;
    RETURN NEXT;
  END IF;
  IF p_policy.dequeue_rate IS NOT NULL THEN
    -- The row says when the bucket would be full again; so much of it may be used before.
    SELECT p_now + make_interval(
      secs => greatest(0, extract(epoch FROM r.free_at - p_now) - (p_policy.burst - 1) / p_policy.dequeue_rate)
    ) INTO v_free
    FROM messages.rate AS r WHERE r.kind = 'dequeue' AND r.topic = p_topic AND r.channel = '';
    IF v_free > p_now THEN
      code := 'rate';
      reason := format(
        'topic %s starts %s messages per second: the next in %s', p_topic, p_policy.dequeue_rate,
        messages.format_interval(v_free - p_now));
      detail := jsonb_build_object('dequeue_rate', p_policy.dequeue_rate, 'burst', p_policy.burst, 'free_at', v_free);
      RETURN NEXT;
    END IF;
  END IF;
END
$$;

-- Returns the pattern or '*' whose row sets a setting of a topic; NULL = the topic's own row, or none, does.
-- Called by: explain_limit. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.pattern_that_sets(p_topic text, p_setting text)
RETURNS text
LANGUAGE sql
STABLE
AS $$
  SELECT nullif((
    SELECT n.name
    FROM unnest(messages.names_of(p_topic)) WITH ORDINALITY AS n (name, nth)
    JOIN messages.topic AS t ON t.topic = n.name AND to_jsonb(t) ->> p_setting IS NOT NULL
    ORDER BY n.nth LIMIT 1), p_topic)
$$;

-- Returns the workers that handle a topic, the first 20, if each of them runs as many of its messages as p_limit, or as
-- it was scaled to: [{"worker", "limit"}].
-- Called by: explain_limit. Locks: nothing. Result: NULL = one runs fewer, or the registry knows no worker of the
-- topic. It counts at most 20,000 running messages.
CREATE OR REPLACE FUNCTION messages.full_workers(p_topic text, p_limit integer)
RETURNS jsonb
LANGUAGE sql
STABLE
AS $$
  WITH running AS (
    SELECT messages.worker_of(h.locked_by) AS worker, count(*) AS count
    FROM (
      SELECT m.locked_by FROM messages.message AS m WHERE m.topic = p_topic AND m.claim_id IS NOT NULL LIMIT 20000) AS h
    GROUP BY 1
  )
  SELECT jsonb_agg(jsonb_build_object('worker', w.name, 'limit', w.most) ORDER BY w.name) FILTER (WHERE w.nth <= 20)
  FROM (
    SELECT s.name, coalesce((s.topic_limits ->> p_topic)::integer, p_limit) AS most,
           row_number() OVER (ORDER BY s.name) AS nth
    FROM messages.worker_state AS s
    WHERE s.handles
      AND (p_topic = ANY (s.topics) OR s.patterns IS NOT NULL AND messages.patterns_of(p_topic) && s.patterns)
  ) AS w
  LEFT JOIN running AS r ON r.worker = w.name
  HAVING bool_and(coalesce(r.count, 0) >= w.most)
$$;
