-- Finds the limit of its topic that a ready message waits for: the concurrency, the probes of a breaker, or the rate.
-- Called by: explain_waiting. Locks: nothing. Result: as explain. Slot holders: the first 20, as worker and message.
CREATE OR REPLACE FUNCTION messages.explain_limit(p_topic text, p_policy messages.policy, p_now timestamptz)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_limit integer := least(p_policy.max_concurrency, p_policy.probes);
  v_held  jsonb;
  v_free  timestamptz;
  v_from  text;
BEGIN
  -- The row that sets it, where that is a pattern.
  v_from := (
    SELECT n.name
    FROM unnest(messages.names_of(p_topic)) WITH ORDINALITY AS n (name, nth)
    JOIN messages.topic AS t ON t.topic = n.name AND t.max_concurrency IS NOT NULL
    ORDER BY n.nth LIMIT 1);
  v_from := CASE WHEN v_from <> p_topic THEN v_from END;
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
