-- Returns whether the rules of a sink select an alert: "on" names kinds and results, "topics" patterns; a missing rule
-- selects everything.
-- Called by: group_new_alerts, settle_delivery. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.wants_alert(p_alert messages.alert, p_rules jsonb)
RETURNS boolean
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
AS $$
  SELECT (p_rules -> 'kinds' IS NULL
      OR (p_rules -> 'kinds') ?| ARRAY[p_alert.kind, CASE WHEN p_alert.kind = 'dead_message' THEN p_alert.result END])
    AND (p_rules -> 'topics' IS NULL OR EXISTS (
      SELECT FROM jsonb_array_elements_text(p_rules -> 'topics') AS t (pattern)
      WHERE messages.matches_glob(t.pattern, p_alert.topic)))
$$;
