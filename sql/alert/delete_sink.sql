-- Deletes a sink that no configuration names any longer, and the messages waiting for it. A sink that is still
-- configured comes back as a new one.
--
-- Result: whether there was such a sink.
-- Errors: none.
-- Locks: its row and all rows that belong to it.
-- Repeat: safe.
-- Called by: operators (`pgrouse alert forget`).
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
