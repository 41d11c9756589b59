-- Returns until when such an alert is silenced.
--
-- Result: the latest end of the matching silences; NULL = the alert is not silenced.
-- Errors: none.
-- Locks: none.
-- Called by: create_delivery, close_incidents, `pgrouse alert list`.
CREATE OR REPLACE FUNCTION messages.silenced_until(p_kind text, p_topic text, p_error_fingerprint text)
RETURNS timestamptz
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT max(s.until)
  FROM messages.silence AS s
  WHERE s.ended_at IS NULL AND s.until > (SELECT messages.now())
    AND messages.matches_glob(s.kind, p_kind) AND messages.matches_glob(s.topic, p_topic)
    AND (s.error_fingerprint IS NULL OR s.error_fingerprint = p_error_fingerprint)
$$;
