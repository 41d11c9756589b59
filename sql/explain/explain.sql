-- Explain why a message is not running, or how it ended: one row per reason, the most decisive first.
-- Called by: operators and analysts. It shows no payload, and counts are bounded.
-- Locks: nothing; it only reads. Result: at least one row. code: for programs; reason: for people; detail: what the reason is made of.
CREATE OR REPLACE FUNCTION messages.explain(p_id bigint)
RETURNS TABLE (code text, reason text, detail jsonb)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_message  messages.message;
  v_archived messages.message_archive;
BEGIN
  IF p_id IS NULL THEN
    RAISE EXCEPTION 'explain needs the id of a message' USING ERRCODE = '22004';
  END IF;
  -- First the live ones: a message that ends between the two statements is then found by the second.
  SELECT m.* INTO v_message FROM messages.message AS m WHERE m.id = p_id;
  IF v_message.id IS NOT NULL AND v_message.claim_id IS NOT NULL THEN
    RETURN QUERY SELECT * FROM messages.explain_running(v_message);
    RETURN;
  END IF;
  IF v_message.id IS NOT NULL THEN
    RETURN QUERY SELECT * FROM messages.explain_waiting(v_message);
    RETURN;
  END IF;
  SELECT a.* INTO v_archived FROM messages.message_archive AS a WHERE a.id = p_id LIMIT 1;
  IF v_archived.id IS NOT NULL THEN
    RETURN QUERY SELECT * FROM messages.explain_ended(v_archived);
    RETURN;
  END IF;
  RETURN QUERY SELECT * FROM messages.explain_missing(p_id);
END
$$;
