-- Ends a silence early. Problems that it held back and that still continue are reported within some seconds.
--
-- Result: whether there was such a silence that had not ended.
-- Errors: none.
-- Locks: its row.
-- Repeat: safe.
-- Called by: operators (`pgrouse alert silence remove`).
CREATE OR REPLACE FUNCTION messages.unsilence(p_id bigint)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_topic text;
BEGIN
  UPDATE messages.silence AS s SET ended_at = v_now
  WHERE s.id = p_id AND s.ended_at IS NULL AND s.until > v_now
  RETURNING s.topic INTO v_topic;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM messages.audit_action('alert.unsilence', v_topic, p_id::text);
  RETURN true;
END
$$;
