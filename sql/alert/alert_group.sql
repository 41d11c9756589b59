-- The group of an alert: its kind, and those of topic, result and fingerprint that "group_by" of the rules names.
-- Called by: group_new_alerts, settle_delivery. Locks: nothing. Result: the same 32 hex digits for the same group.
-- The result of a condition or a breaker says whether it began or ended: groups do not depend on it. They always depend
-- on the topic.
CREATE OR REPLACE FUNCTION messages.alert_group(p_alert messages.alert, p_rules jsonb)
RETURNS text
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
  SELECT md5(jsonb_build_array(
    p_alert.kind,
    CASE WHEN p_alert.kind <> 'dead_message' OR (p_rules -> 'group_by') ? 'topic' THEN p_alert.topic END,
    CASE WHEN p_alert.kind = 'dead_message' AND (p_rules -> 'group_by') ? 'result' THEN p_alert.result END,
    CASE WHEN p_alert.kind = 'dead_message' AND (p_rules -> 'group_by') ? 'fingerprint'
      THEN p_alert.error_fingerprint END)::text)
$$;
