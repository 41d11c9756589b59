-- Tells how a message ended, and what happened to it since.
-- Called by: explain. Locks: nothing. Result: as explain; the result is last, after what replaced the message.
CREATE OR REPLACE FUNCTION messages.explain_ended(p_archived messages.message_archive)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
AS $$
DECLARE
  v_ago   text := messages.format_interval(messages.now() - p_archived.archived_at) || ' ago';
  v_after text := p_archived.attempts || CASE WHEN p_archived.attempts = 1 THEN ' attempt' ELSE ' attempts' END;
  v_by    text := coalesce(
    CASE WHEN p_archived.attempts > 1 THEN ', the last' ELSE '' END || ' by ' || p_archived.handled_by, '');
  v_error text := coalesce(': ' || messages.short_error_line(p_archived.error), '');
  v_until timestamptz := ((p_archived.archived_at AT TIME ZONE 'UTC') + p_archived.retention) AT TIME ZONE 'UTC';
BEGIN
  RETURN QUERY
  SELECT 'redriven',
         format(
           'it was redriven %s ago by %s as message %s', messages.format_interval(messages.now() - r.redriven_at),
           r.redriven_by, r.message_id),
         jsonb_build_object('message_id', r.message_id, 'redriven_at', r.redriven_at, 'redriven_by', r.redriven_by)
  FROM messages.redrive_log AS r WHERE r.archived_id = p_archived.id;

  IF p_archived.attempts = 0 AND jsonb_typeof(p_archived.output -> 'fanned_out') = 'object' THEN
    code := 'fanned_out';
    reason := format('it was fanned out %s to %s', v_ago, (
      SELECT string_agg(
        f.key || coalesce(' as message ' || f.value, ' (no message was published there)'), ', ' ORDER BY f.key
      ) FROM jsonb_each_text(p_archived.output -> 'fanned_out') AS f));
    detail := p_archived.output -> 'fanned_out';
    RETURN NEXT;
  END IF;

  RETURN QUERY
  SELECT 'dead_letter',
         CASE
           WHEN EXISTS (SELECT FROM messages.message AS m WHERE m.id = l.message_id)
             THEN format('its copy in topic %s.dlq is message %s', p_archived.topic, l.message_id)
           ELSE format('its copy in topic %s.dlq was message %s, which has ended', p_archived.topic, l.message_id)
         END,
         jsonb_build_object('message_id', l.message_id)
  FROM messages.dead_letter AS l WHERE l.origin_id = p_archived.id;

  code := CASE WHEN p_archived.result = 'cancelled' AND p_archived.error LIKE 'superseded:%' THEN 'superseded'
    ELSE p_archived.result END;
  reason := CASE code
    WHEN 'superseded' THEN format('it was cancelled %s after %s%s', v_ago, v_after, v_error)
    WHEN 'success' THEN format('it succeeded %s after %s%s', v_ago, v_after, v_by)
    WHEN 'rejected'
      THEN format('it is dead: %s rejected it %s%s', coalesce(p_archived.handled_by, 'its handler'), v_ago, v_error)
    WHEN 'failed' THEN format('it is dead: it failed %s after %s%s%s', v_ago, v_after, v_by, v_error)
    WHEN 'lock_expired' THEN format('it is dead: its lock expired %s after %s%s', v_ago, v_after, v_error)
    WHEN 'expired' THEN format('it is dead: its time to live ended %s, before it was done', v_ago)
    ELSE format('it was cancelled %s%s%s', v_ago, ' by ' || p_archived.handled_by, v_error)
  END || coalesce(
    '; its own retention keeps it until ' || to_char(v_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"'), '');
  detail := jsonb_strip_nulls(jsonb_build_object(
    'archived_at', p_archived.archived_at, 'handled_by', p_archived.handled_by, 'attempts', p_archived.attempts,
    'error_fingerprint', p_archived.error_fingerprint, 'redriven_from', p_archived.redriven_from,
    'kept_until', v_until));
  RETURN NEXT;
END
$$;
