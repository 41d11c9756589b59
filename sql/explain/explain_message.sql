-- Finds what in the message itself keeps it from being claimed: its TTL is over, its attempts are used up, or it is due
-- later.
-- Called by: explain_waiting. Locks: nothing. Result: as explain.
CREATE OR REPLACE FUNCTION messages.explain_message(p_message messages.message, p_now timestamptz)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_last   jsonb := p_message.history -> -1;
  v_state  text  := messages.live_state(
    p_message.id, p_message.topic, p_message.channel, p_message.claim_id, p_message.available_at, p_message.history,
    p_now);
  v_due_at timestamptz := messages.due_at(
    p_message.id, p_message.topic, p_message.channel, p_message.available_at);
  v_due    text;
  v_limit  integer;
BEGIN
  v_due := format('due in %s', messages.format_interval(v_due_at - p_now)) || CASE
    WHEN v_due_at <> p_message.available_at
      THEN format(', and channel %s of topic %s waits for it', p_message.channel, p_message.topic)
    ELSE '' END;
  SELECT nullif(coalesce(p_message.max_attempts, t.max_attempts, d.max_attempts), 0) INTO v_limit
  FROM messages.inherited_policy AS d LEFT JOIN messages.topic AS t ON t.topic = p_message.topic
  WHERE d.topic = messages.inherits_from(p_message.topic);

  IF p_message.expires_at <= p_now THEN
    code := 'outlived';
    reason := format('its time to live ended %s ago: no worker processes it any more, '
      'and the next claim or tick archives it as expired',
                     messages.format_interval(p_now - p_message.expires_at));
    detail := jsonb_build_object('expires_at', p_message.expires_at);
    RETURN NEXT;
  END IF;
  IF p_message.attempts >= v_limit THEN
    code := 'attempts_used_up';
    reason := format('it has had %s of %s attempts: the next claim archives it as failed', p_message.attempts, v_limit);
    detail := jsonb_build_object('attempts', p_message.attempts, 'max_attempts', v_limit);
    RETURN NEXT;
  END IF;
  IF v_state = 'waiting' THEN
    RETURN QUERY SELECT * FROM messages.explain_event(p_message, p_now);
    IF FOUND THEN
      RETURN;
    END IF;
  END IF;
  IF v_state <> 'ready' THEN
    code := CASE
      WHEN v_state = 'retrying' THEN v_state
      WHEN v_last ->> 'outcome' = 'deferred' THEN 'deferred'
      WHEN p_message.debounce_limit IS NOT NULL THEN 'debounced'
      ELSE 'delayed'
    END;
    reason := CASE code
      WHEN 'retrying' THEN format('attempt %s%s ended as %s: %s; the next is %s%s',
        v_last ->> 'attempt', ' of ' || v_limit, v_last ->> 'outcome', messages.short_error_line(v_last ->> 'error'),
        v_due, CASE WHEN p_message.backoff IS NOT NULL THEN format(
          '; it has its own backoff: %s', p_message.backoff ->> 'kind') ELSE '' END)
      WHEN 'deferred' THEN format('its handler deferred it; it is %s', v_due)
      WHEN 'debounced' THEN format(
        'it is debounced until %s, %s; further publishes of its key move that%s',
        to_char(p_message.available_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'), v_due,
        CASE WHEN p_message.debounce_limit < '9000-01-01 00:00+00' THEN format(
          ', at most to %s', to_char(p_message.debounce_limit AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'))
        ELSE '' END)
      ELSE format('it is delayed, %s', v_due)
    END;
    detail := jsonb_build_object(
      'available_at', p_message.available_at, 'due_at', v_due_at, 'attempts', p_message.attempts,
      'max_attempts', v_limit)
      || CASE code WHEN 'debounced' THEN jsonb_build_object('debounce_limit', p_message.debounce_limit) ELSE '{}' END
      || CASE WHEN code = 'retrying' AND p_message.backoff IS NOT NULL
        THEN jsonb_build_object('backoff', p_message.backoff) ELSE '{}' END;
    RETURN NEXT;
  END IF;
END
$$;
