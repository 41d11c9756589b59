-- Tells what stopped a topic or channel: a pause, the breaker, or the lack of a worker.
-- Called by: explain_waiting. Locks: nothing. Result: as explain.
CREATE OR REPLACE FUNCTION messages.explain_stopped(p_topic text, p_channel text, p_now timestamptz)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
  v_state record;
BEGIN
  SELECT s.* INTO v_state FROM messages.topic_state(ARRAY[p_topic]) AS s;
  RETURN QUERY
  SELECT 'paused',
         format('%s has been paused for %s%s, %s%s', p.what, messages.format_interval(p_now - p.paused_at),
           ' by ' || p.paused_by,
                coalesce('for another ' || messages.format_interval(p.resume_at - p_now), 'until it is resumed'),
                ': ' || p.paused_reason),
         jsonb_build_object('topic', p.topic, 'channel', p.channel, 'paused_at', p.paused_at, 'paused_by', p.paused_by,
                            'reason', p.paused_reason, 'resume_at', p.resume_at)
  FROM (
    SELECT 1 AS place,
           CASE
             WHEN s.topic = '*' THEN 'every topic'
             WHEN right(s.topic, 1) = '*' THEN 'the pattern ' || s.topic
             ELSE 'topic ' || s.topic
           END AS what,
           s.topic, NULL AS channel, s.paused_at, s.paused_by, s.paused_reason, s.resume_at
    FROM messages.topic_state(messages.names_of(p_topic) || '*'::text) AS s WHERE s.paused_topic = s.topic
    UNION ALL
    SELECT 2, format('channel %s of topic %s', c.channel, c.topic), c.topic, c.channel, c.paused_at, c.paused_by,
           c.paused_reason, c.resume_at
    FROM messages.channel_state AS c WHERE c.topic = p_topic AND c.channel = p_channel AND c.paused
  ) AS p
  ORDER BY p.place, p.topic COLLATE "C";

  IF v_state.breaker = 'open' THEN
    code := 'breaker_open';
    reason := format('the breaker of topic %s has been open for %s%s; it lets a probe through in %s', p_topic,
      messages.format_interval(p_now - v_state.breaker_changed_at), ': ' || v_state.breaker_reason,
      messages.format_interval(v_state.probe_at - p_now));
    detail := jsonb_build_object(
      'changed_at', v_state.breaker_changed_at, 'probe_at', v_state.probe_at, 'reason', v_state.breaker_reason);
    RETURN NEXT;
  END IF;
  IF NOT v_state.handled THEN
    code := 'unhandled';
    reason := format('no live worker handles topic %s: start one with a handler for it', p_topic);
    detail := (
      SELECT jsonb_build_object('topic', p_topic, 'live_workers', count(*))
      FROM messages.worker_state AS w WHERE w.handles);
    RETURN NEXT;
  END IF;
END
$$;
