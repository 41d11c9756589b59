-- Tells what is known of a locked message: by whom, since when and until when it is locked, and its progress.
-- Called by: explain. Locks: nothing. Result: as explain.
CREATE OR REPLACE FUNCTION messages.explain_running(p_message messages.message)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
  v_now    timestamptz := messages.now();
  v_left   interval    := p_message.lock_expires_at - v_now;
  v_limit  integer;
  v_ticked timestamptz;
BEGIN
  SELECT nullif(coalesce(p_message.max_attempts, t.max_attempts, d.max_attempts), 0) INTO v_limit
  FROM messages.inherited_policy AS d LEFT JOIN messages.topic AS t ON t.topic = p_message.topic
  WHERE d.topic = messages.inherits_from(p_message.topic);
  detail := jsonb_build_object(
    'worker', p_message.locked_by, 'locked_at', p_message.locked_at, 'lock_expires_at', p_message.lock_expires_at,
    'attempt', p_message.attempts, 'max_attempts', v_limit,
    'progress', (
      -- A handler may report anything as its progress; numbers and their unit are no content.
      SELECT jsonb_object_agg(p.key, p.value)
      FROM jsonb_each(CASE WHEN jsonb_typeof(p_message.progress) = 'object' THEN p_message.progress END) AS p
      WHERE (p.key IN ('done', 'total') AND jsonb_typeof(p.value) = 'number')
         OR (p.key = 'unit' AND jsonb_typeof(p.value) = 'string' AND length(p.value #>> '{}') <= 50)));

  IF v_left < '0' THEN
    SELECT max(k.ran_at) INTO v_ticked FROM messages.tick_mark AS k WHERE k.task = 'expire_locks';
    code := 'lock_ran_out';
    reason := format(
      'the lock of %s expired %s ago (attempt %s%s): the next tick ends that attempt; the last one was %s',
      p_message.locked_by, messages.format_interval(-v_left), p_message.attempts, ' of ' || v_limit,
      coalesce(
        messages.format_interval(v_now - v_ticked) || ' ago', 'never: start a daemon, or install the jobs of pg_cron'));
    detail := detail || jsonb_build_object('ticked_at', v_ticked);
    RETURN NEXT;
  ELSIF p_message.prefetched THEN
    code := 'prefetched';
    reason := format(
      'prefetched by %s %s ago: it waits there until a handler is free', p_message.locked_by,
      messages.format_interval(v_now - p_message.locked_at));
    RETURN NEXT;
  ELSE
    code := 'running';
    reason := format(
      'locked by %s for %s, attempt %s%s; the lock expires in %s unless a heartbeat extends it%s%s',
      p_message.locked_by, messages.format_interval(v_now - p_message.locked_at), p_message.attempts, ' of ' || v_limit,
      messages.format_interval(v_left),
      '; progress ' || (detail -> 'progress' ->> 'done') || coalesce(' of ' || (detail -> 'progress' ->> 'total'), '')
        || coalesce(' ' || (detail -> 'progress' ->> 'unit'), ''),
      '; its own timeout is ' || messages.format_interval(p_message.timeout));
    detail := detail || jsonb_strip_nulls(jsonb_build_object('timeout', p_message.timeout));
    RETURN NEXT;
  END IF;
  RETURN QUERY
  SELECT 'worker_silent',
         format('its worker %s was last seen %s ago: it stopped, hangs or lost its connection; '
           'the message is available again when the lock expires',
                w.name, messages.format_interval(v_now - w.seen_at)),
         jsonb_build_object('worker', w.name, 'seen_at', w.seen_at, 'host', w.host, 'pid', w.pid)
  FROM messages.worker_state AS w
  WHERE w.name = messages.worker_of(p_message.locked_by) AND w.state = 'silent';
END
$$;
