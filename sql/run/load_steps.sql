-- Returns the steps that earlier attempts of a message stored, to the worker that holds it.
--
-- Arguments: `p_name`: only the step of this name; NULL = all.
-- Result: a row for each step; if nothing is stored, one row whose columns are NULL. **No row: the message is not under
-- this claim, and the step must not run.** With `strict_lock`, an expired lock is lost too.
-- Errors: none.
-- Locks: none.
-- Called by: workers, right before they run a step.
CREATE OR REPLACE FUNCTION messages.load_steps(p_id bigint, p_claim_id bigint, p_name text DEFAULT NULL)
RETURNS TABLE (name text, result text)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
BEGIN
  RETURN QUERY
  SELECT s.name::text, s.result::text
  FROM messages.message AS m
  LEFT JOIN messages.step AS s ON s.message_id = m.id AND (p_name IS NULL OR s.name = p_name)
    -- Those are signals: see load_events.
    AND s.name NOT LIKE 'event:%'
  WHERE m.id = p_id AND m.claim_id = p_claim_id
    AND (m.lock_expires_at > messages.now() OR NOT messages.has_strict_lock(m.topic));
END
$$;
