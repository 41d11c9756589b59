-- Forget a sink that no configuration names any more, and what it was to be sent.
-- Called by: operators (pgrouse alert forget). One that is still configured comes back as a new one.
-- Locks: its row and all that belongs to it. Result: whether there was such a sink.
CREATE OR REPLACE FUNCTION messages.forget_sink(p_sink text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  DELETE FROM messages.alert_sink AS s WHERE s.name = p_sink;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM messages.note_action('alert.forget_sink', NULL, p_sink);
  RETURN true;
END
$$;
