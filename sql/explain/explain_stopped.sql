-- What stopped a topic or channel: a pause, the breaker, or the lack of a worker.
-- Called by: explain_waiting. Locks: nothing. Result: as explain.
CREATE OR REPLACE FUNCTION messages.explain_stopped(p_topic text, p_channel text, p_now timestamptz)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
AS $$
BEGIN
  RETURN QUERY
  SELECT 'paused',
         format('%s has been paused for %s%s, %s%s', p.what, messages.format_interval(p_now - p.paused_at), ' by ' || p.paused_by,
                coalesce('for another ' || messages.format_interval(p.resume_at - p_now), 'until it is resumed'), ': ' || p.paused_reason),
         jsonb_build_object('topic', p.topic, 'channel', p.channel, 'paused_at', p.paused_at, 'paused_by', p.paused_by,
                            'reason', p.paused_reason, 'resume_at', p.resume_at)
  FROM (
    SELECT 1 AS place, 'every topic' AS what, t.topic, NULL AS channel, t.paused_at, t.paused_by, t.paused_reason, t.resume_at
    FROM messages.topic AS t WHERE t.topic = '*'
    UNION ALL
    SELECT 2, 'topic ' || t.topic, t.topic, NULL, t.paused_at, t.paused_by, t.paused_reason, t.resume_at
    FROM messages.topic AS t WHERE t.topic = p_topic
    UNION ALL
    SELECT 3, format('channel %s of topic %s', c.channel, c.topic), c.topic, c.channel, c.paused_at, c.paused_by, c.paused_reason, c.resume_at
    FROM messages.channel AS c WHERE c.topic = p_topic AND c.channel = p_channel
  ) AS p
  WHERE messages.is_paused(p.paused_at, p.resume_at, p_now)
  ORDER BY p.place;

  RETURN QUERY
  SELECT 'breaker_open',
         format('the breaker of topic %s has been open for %s%s; it lets a probe through in %s', b.topic,
                messages.format_interval(p_now - b.changed_at), ': ' || b.reason, messages.format_interval(b.probe_at - p_now)),
         jsonb_build_object('changed_at', b.changed_at, 'probe_at', b.probe_at, 'reason', b.reason)
  FROM messages.breaker AS b
  CROSS JOIN messages.topic AS d
  LEFT JOIN messages.topic AS t ON t.topic = b.topic
  WHERE d.topic = '*' AND b.topic = p_topic AND coalesce(t.breaker, d.breaker) IS NOT NULL AND b.position = 'open' AND b.probe_at > p_now;

  IF NOT messages.is_handled(p_topic) THEN
    code := 'unhandled';
    reason := format('no live worker handles topic %s: start one with a handler for it', p_topic);
    detail := (
      SELECT jsonb_build_object('topic', p_topic, 'live_workers', count(*))
      FROM messages.worker_state AS w WHERE w.handles);
    RETURN NEXT;
  END IF;
END
$$;
