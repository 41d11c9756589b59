-- Delete a sink that is no longer configured, with its pending notifications.
-- Called by: operators (pgrouse alert forget). A sink that is still configured comes back as a new one.
-- Locks: its row and all that belongs to it. Result: whether there was such a sink.
CREATE OR REPLACE FUNCTION messages.delete_sink(p_sink text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
BEGIN
  DELETE FROM messages.alert_sink AS s WHERE s.name = p_sink;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM messages.audit_action('alert.delete_sink', NULL, p_sink);
  RETURN true;
END
$$;
