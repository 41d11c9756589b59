-- Keep what a step of a handler returned, so that later attempts of its message get it instead of doing the step again.
-- Called by: workers, while they hold the message; in a transaction of its own, or in that in which the step wrote.
-- A step that is kept already stays as it is. p_result: at most 2 MiB as text; at most 1000 steps of a message.
-- Errors: 22023 for a name or a result that cannot be kept, or too many steps; 23505 the step was kept under another claim meanwhile: whoever
-- was released while a transaction of his was open may still commit it, and what is done in the caller's must not be there twice.
-- Locks: the message, FOR KEY SHARE, until the transaction ends: heartbeats go on, its end waits; release and defer do not, so that a drain
-- waits for no thread. With strict_lock a lock that ran out is lost.
-- Result: whether the message is still under this claim; false = nothing was kept.
CREATE OR REPLACE FUNCTION messages.keep_step(p_id bigint, p_claim_id bigint, p_name text, p_result jsonb)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
  v_attempt integer;
  v_bytes   bigint := messages.text_bytes(p_result);
BEGIN
  IF p_name IS NULL OR NOT messages.is_printable(p_name) OR length(p_name) NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'name of a step is %', coalesce('"' || left(p_name, 250) || '"', 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 200 printable characters';
  END IF;
  IF p_result IS NULL OR v_bytes > 2097152 THEN
    RAISE EXCEPTION 'result of step "%" of message % %', p_name, p_id, coalesce('has ' || v_bytes || ' bytes', 'is NULL')
      USING ERRCODE = '22023', HINT = 'use JSON of at most 2097152 bytes; keep what is larger elsewhere and return where it is';
  END IF;
  SELECT m.attempts INTO v_attempt
  FROM messages.message AS m
  WHERE m.id = p_id AND m.claim_id = p_claim_id AND (m.lock_expires_at > messages.now() OR NOT messages.is_strict(m.topic))
  FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF (SELECT count(*) FROM messages.step AS s WHERE s.message_id = p_id) >= 1000 THEN
    RAISE EXCEPTION 'message % has 1000 steps already', p_id
      USING ERRCODE = '22023', HINT = 'do more in each step, or publish messages that come after each other';
  END IF;
  INSERT INTO messages.step (message_id, name, result, attempt, claim_id)
  VALUES (p_id, p_name, p_result, v_attempt, p_claim_id) ON CONFLICT DO NOTHING;
  IF NOT FOUND AND EXISTS (
    SELECT FROM messages.step AS s WHERE s.message_id = p_id AND s.name = p_name AND s.claim_id <> p_claim_id
  ) THEN
    RAISE EXCEPTION 'step "%" of message % was kept by another attempt meanwhile', p_name, p_id
      USING ERRCODE = '23505', HINT = 'roll back: the next attempt gets what was kept';
  END IF;
  PERFORM messages.mark_awaited();
  RETURN true;
END
$$;
