-- Tells what keeps a message that is not locked from being claimed.
-- Called by: explain. Locks: nothing. Result: as explain; ready if nothing does.
CREATE OR REPLACE FUNCTION messages.explain_waiting(p_message messages.message)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
  v_now    timestamptz     := messages.now();
  v_policy messages.policy := messages.claim_policy(p_message.topic, v_now);
  v_found  boolean;
  -- By which patterns workers handle its topic.
  v_patterns text[];
BEGIN
  RETURN QUERY SELECT * FROM messages.explain_blocked(p_message);
  v_found := FOUND;
  IF NOT v_found THEN
    RETURN QUERY SELECT * FROM messages.explain_message(p_message, v_now);
    v_found := FOUND;
  END IF;
  RETURN QUERY SELECT * FROM messages.explain_stopped(p_message.topic, p_message.channel, v_now);
  v_found := v_found OR FOUND;
  IF p_message.available_at <= v_now THEN
    RETURN QUERY SELECT * FROM messages.explain_locked(p_message, v_now);
    v_found := v_found OR FOUND;
    IF p_message.channel IS NOT NULL THEN
      RETURN QUERY SELECT * FROM messages.explain_channel(p_message, v_policy, v_now);
      v_found := v_found OR FOUND;
    END IF;
    RETURN QUERY SELECT * FROM messages.explain_limit(p_message.topic, v_policy, v_now);
    v_found := v_found OR FOUND;
    RETURN QUERY SELECT * FROM messages.explain_queue_position(p_message, v_now);
    v_found := v_found OR FOUND;
  END IF;
  IF NOT v_found THEN
    code := 'ready';
    v_patterns := ARRAY(
      SELECT p.pattern
      FROM unnest(messages.patterns_of(p_message.topic)) WITH ORDINALITY AS p (pattern, nth)
      WHERE EXISTS (
        SELECT FROM messages.worker_state AS w
        WHERE w.handles AND p.pattern = ANY (w.patterns) AND p_message.topic <> ALL (w.topics))
      ORDER BY p.nth);
    reason := format(
      'it has been ready for %s: the next claim takes it%s', messages.format_interval(v_now - p_message.available_at),
      '; workers handle its topic by the pattern ' || nullif(array_to_string(v_patterns, ', '), ''));
    detail := jsonb_build_object('available_at', p_message.available_at)
      || CASE WHEN v_patterns = '{}' THEN '{}' ELSE jsonb_build_object('patterns', v_patterns) END;
    RETURN NEXT;
  END IF;
END
$$;
