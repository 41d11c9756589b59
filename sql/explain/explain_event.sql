-- Tells which event a message waits for, and until when.
-- Called by: explain_message, for a message that waits for one. Locks: nothing. Result: as explain.
CREATE OR REPLACE FUNCTION messages.explain_event(p_message messages.message, p_now timestamptz)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_event text;
  v_until timestamptz;
BEGIN
  SELECT w.result ->> 'name', (w.result ->> 'until')::timestamptz INTO v_event, v_until
  FROM messages.step AS w WHERE w.message_id = p_message.id AND w.name = 'event:wait';
  IF v_event IS NULL THEN
    RETURN;
  END IF;
  code := 'waiting_for_event';
  reason := format('its handler waits for the event "%s"%s; a signal continues it: `pgrouse message signal %s %s`',
    v_event,
    CASE
      WHEN v_until IS NULL THEN ', without a time limit'
      ELSE format(', until %s, %s from now', to_char(v_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'),
                  messages.format_interval(v_until - p_now))
    END,
    p_message.id, CASE WHEN v_event ~ '^[A-Za-z0-9_.:-]+$' THEN v_event ELSE 'NAME' END);
  detail := jsonb_build_object('event', v_event, 'until', v_until);
  RETURN NEXT;
END
$$;
