-- Returns which silence applies to such an alert.
--
-- Result: the id of the matching silence that ends last; NULL = the alert is not silenced.
-- Errors: none.
-- Locks: none.
-- Called by: create_delivery, claim_delivery, open_conditions, incidents, dead_groups, `pgrouse alert list`.
CREATE OR REPLACE FUNCTION messages.silence_of(p_kind text, p_topic text, p_error_fingerprint text)
RETURNS bigint
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT s.id
  FROM messages.silence AS s
  WHERE s.ended_at IS NULL AND s.until > (SELECT messages.now())
    AND messages.matches_glob(s.kind, p_kind) AND messages.matches_glob(s.topic, p_topic)
    AND (s.error_fingerprint IS NULL OR s.error_fingerprint = p_error_fingerprint)
  ORDER BY s.until DESC, s.id DESC
  LIMIT 1
$$;
