-- Record direct changes of policies, channels, schedules, subscriptions and thresholds in messages.audit, with the old
-- and the new values; pauses and resumes too, however they are made. A pause that expired and was cleared is not
-- recorded, since no person did it; nor is what schedules write when they fire, unless a role writes the same by hand
-- (audit_change_by_hand).
-- Locks: nothing but the row it inserts.
CREATE OR REPLACE FUNCTION messages.audit_change()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_old    jsonb := CASE WHEN TG_OP = 'INSERT' THEN '{}' ELSE to_jsonb(OLD) END;
  v_new    jsonb := CASE WHEN TG_OP = 'DELETE' THEN '{}' ELSE to_jsonb(NEW) END;
  v_row    jsonb := CASE WHEN TG_OP = 'DELETE' THEN to_jsonb(OLD) ELSE to_jsonb(NEW) END;
  v_now    timestamptz := messages.now();
  v_suffix text := CASE WHEN TG_TABLE_NAME = 'schedule' THEN '_schedule' ELSE '' END;
  v_target text := coalesce(v_row ->> 'name', v_row ->> 'channel', v_row ->> 'subscriber');
  v_paused text[] := ARRAY['paused_at', 'resume_at', 'paused_by', 'paused_reason'];
  -- The columns of these rows that the queue itself writes.
  v_notes  text[] := CASE
    WHEN TG_NAME = 'audit_change_by_hand' AND TG_OP = 'UPDATE' THEN '{}'
    WHEN TG_TABLE_NAME = 'schedule' THEN
      ARRAY[
        'next_tick', 'last_tick', 'last_message_id', 'last_fired_at', 'last_error', 'failed_at', 'failures', 'retry_at']
    ELSE ARRAY['updated_at']
  END;
  v_topics text[] := ARRAY(
    SELECT DISTINCT t.topic
    FROM unnest(
      ARRAY[v_old ->> 'topic', v_new ->> 'topic', v_old ->> 'subscriber', v_new ->> 'subscriber']
    ) AS t (topic)
    WHERE t.topic IS NOT NULL ORDER BY 1);
  v_change jsonb;
  v_action text;
BEGIN
  IF v_new ->> 'paused_at' IS NOT NULL AND messages.jsonb_diff(v_old, v_new, '{}') ?| v_paused THEN
    PERFORM messages.audit_action(
      'pause' || v_suffix, v_row ->> 'topic', v_target,
      jsonb_build_object('reason', v_new -> 'paused_reason', 'until', v_new -> 'resume_at'));
  ELSIF v_new ->> 'paused_at' IS NULL
    AND messages.is_paused((v_old ->> 'paused_at')::timestamptz, (v_old ->> 'resume_at')::timestamptz, v_now) THEN
    PERFORM messages.audit_action('resume' || v_suffix, v_row ->> 'topic', v_target);
  END IF;

  v_change := messages.jsonb_diff(
    v_old, v_new, v_paused || v_notes
      || CASE WHEN TG_OP = 'UPDATE' THEN '{}' ELSE ARRAY['created_at', 'created_by'] END);
  -- A new or an old row that says nothing but which topic or channel it is for.
  IF v_change = '{}' OR TG_OP <> 'UPDATE' AND TG_TABLE_NAME IN ('topic', 'channel')
    AND v_change - ARRAY['topic', 'channel'] = '{}' THEN
    RETURN NULL;
  END IF;
  v_action := CASE TG_TABLE_NAME || ' ' || TG_OP
    WHEN 'topic DELETE' THEN 'remove_policy'
    WHEN 'channel DELETE' THEN 'remove_channel_policy'
    WHEN 'channel INSERT' THEN 'set_channel_policy'
    WHEN 'channel UPDATE' THEN 'set_channel_policy'
    WHEN 'schedule INSERT' THEN 'add_schedule'
    WHEN 'schedule UPDATE' THEN 'change_schedule'
    WHEN 'schedule DELETE' THEN 'remove_schedule'
    WHEN 'subscription INSERT' THEN 'subscribe'
    WHEN 'subscription UPDATE' THEN 'change_subscription'
    WHEN 'subscription DELETE' THEN 'unsubscribe'
    WHEN 'alert_threshold INSERT' THEN 'set_alert_threshold'
    WHEN 'alert_threshold UPDATE' THEN 'set_alert_threshold'
    WHEN 'alert_threshold DELETE' THEN 'remove_alert_threshold'
    ELSE 'set_policy'
  END;
  PERFORM messages.audit_action(v_action, v_row ->> 'topic', v_target, jsonb_build_object('changes', v_change)
    -- A caller that may not see all of these topics may not see the row.
    || CASE WHEN cardinality(v_topics) > 1 THEN jsonb_build_object('topics', v_topics) ELSE '{}' END);
  RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER audit_change
AFTER INSERT OR UPDATE OR DELETE ON messages.topic
FOR EACH ROW EXECUTE FUNCTION messages.audit_change();

CREATE OR REPLACE TRIGGER audit_change
AFTER INSERT OR UPDATE OR DELETE ON messages.channel
FOR EACH ROW EXECUTE FUNCTION messages.audit_change();

CREATE OR REPLACE TRIGGER audit_change
AFTER INSERT OR UPDATE OR DELETE ON messages.subscription
FOR EACH ROW EXECUTE FUNCTION messages.audit_change();

CREATE OR REPLACE TRIGGER audit_change
AFTER INSERT OR UPDATE OR DELETE ON messages.alert_threshold
FOR EACH ROW EXECUTE FUNCTION messages.audit_change();

-- Schedules fire with the rights of the owner. A role that is neither the owner nor a superuser may not TRUNCATE the
-- table.
CREATE OR REPLACE TRIGGER audit_change
AFTER INSERT OR DELETE OR UPDATE OF
  name, cron, time_zone, topic, channel, key, priority, max_attempts, timeout, backoff, retention, payload,
  headers, jitter, missed, missed_limit, while_paused, paused_at, paused_by, paused_reason,
  created_at, created_by, declared_by
ON messages.schedule
FOR EACH ROW WHEN (has_table_privilege('messages.schedule', 'TRUNCATE')) EXECUTE FUNCTION messages.audit_change();

CREATE OR REPLACE TRIGGER audit_change_by_hand
AFTER INSERT OR DELETE OR UPDATE ON messages.schedule
FOR EACH ROW WHEN (NOT has_table_privilege('messages.schedule', 'TRUNCATE')) EXECUTE FUNCTION messages.audit_change();

-- Compare two objects: {"key": {"old": ..., "new": ...}} for each key that differs; long values are cut.
-- Called by: the trigger audit_change, edit. p_without: keys to ignore. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.jsonb_diff(p_old jsonb, p_new jsonb, p_without text[] DEFAULT '{}')
RETURNS jsonb
LANGUAGE sql
IMMUTABLE
AS $$
  SELECT coalesce(jsonb_object_agg(c.key, jsonb_build_object('old', c.old, 'new', c.new) ORDER BY c.key), '{}')
  FROM (
    SELECT coalesce(o.key, n.key) AS key,
           CASE WHEN length(o.value::text) > 1000 THEN to_jsonb(left(o.value::text, 1000) || '...')
             ELSE o.value END AS old,
           CASE WHEN length(n.value::text) > 1000 THEN to_jsonb(left(n.value::text, 1000) || '...')
             ELSE n.value END AS new
    FROM jsonb_each(p_old) AS o
    FULL JOIN jsonb_each(p_new) AS n ON n.key = o.key
    WHERE coalesce(o.value, 'null') IS DISTINCT FROM coalesce(n.value, 'null')
  ) AS c
  WHERE c.key <> ALL (p_without)
$$;
