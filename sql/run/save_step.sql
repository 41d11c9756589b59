-- Stores what a step of a handler returned, so that later attempts of the message get this result and do not run the
-- step again. Call it in a separate transaction, or in the transaction in which the step wrote: then its writes happen
-- exactly once.
--
-- The steps of a message are deleted when it ends as `success` or `cancelled`. Those of a dead message are kept as long
-- as its archive row. A redrive passes them to the new message, unless that has another topic.
--
-- Arguments: `p_name`: 1 to 200 printable characters, unique in its message, and not beginning with `event:`; a result
-- that is already stored does not change. `p_result`: at most 2 MiB as text. A message has at most 1000 steps.
-- Result: whether the message is still under this claim; false = nothing was stored. With `strict_lock`, an expired
-- lock is lost too.
-- Errors: 22023 for an invalid name or result, or too many steps. 23505: the step was stored under another claim in the
-- meantime; roll back, and the next attempt gets its result.
-- Locks: the message, FOR KEY SHARE, until the transaction ends: heartbeats continue, but the end of the message waits.
-- `messages.release` and `messages.defer` do not wait, so that a drain does not wait for a thread: if that transaction
-- commits after all, the transaction of the next claim gets the 23505.
-- Repeat: safe.
-- Called by: workers, while they hold the message.
CREATE OR REPLACE FUNCTION messages.save_step(p_id bigint, p_claim_id bigint, p_name text, p_result jsonb)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_attempt integer;
  v_bytes   bigint := messages.jsonb_text_bytes(p_result);
BEGIN
  IF p_name IS NULL OR NOT messages.is_printable(p_name) OR length(p_name) NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'name of a step is %', coalesce('"' || left(p_name, 250) || '"', 'NULL')
      USING ERRCODE = '22023', HINT = 'use 1 to 200 printable characters';
  END IF;
  IF p_name LIKE 'event:%' THEN
    RAISE EXCEPTION 'name of a step is "%"', p_name
      USING ERRCODE = '22023', HINT = 'names that begin with event: belong to signals: use another';
  END IF;
  IF p_result IS NULL OR v_bytes > 2097152 THEN
    RAISE EXCEPTION 'result of step "%" of message % %', p_name, p_id,
      coalesce('has ' || v_bytes || ' bytes', 'is NULL')
      USING ERRCODE = '22023',
        HINT = 'use JSON of at most 2097152 bytes; keep what is larger elsewhere and return where it is';
  END IF;
  SELECT m.attempts INTO v_attempt
  FROM messages.message AS m
  WHERE m.id = p_id AND m.claim_id = p_claim_id
    AND (m.lock_expires_at > messages.now() OR NOT messages.has_strict_lock(m.topic))
  FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  -- Signals are not counted: who may signal could keep the handler from its steps.
  IF (SELECT count(*) FROM messages.step AS s WHERE s.message_id = p_id AND s.name NOT LIKE 'event:%') >= 1000 THEN
    RAISE EXCEPTION 'message % has 1000 steps already', p_id
      USING ERRCODE = '22023', HINT = 'do more in each step, or publish messages that come after each other';
  END IF;
  INSERT INTO messages.step (message_id, name, result, attempt, claim_id)
  VALUES (p_id, p_name, p_result, v_attempt, p_claim_id) ON CONFLICT DO NOTHING;
  IF NOT FOUND AND EXISTS (
    SELECT FROM messages.step AS s WHERE s.message_id = p_id AND s.name = p_name AND s.claim_id <> p_claim_id
  ) THEN
    RAISE EXCEPTION 'step "%" of message % was kept by another attempt in the meantime', p_name, p_id
      USING ERRCODE = '23505', HINT = 'roll back: the next attempt gets what was kept';
  END IF;
  PERFORM messages.raise_awaited_flag();
  RETURN true;
END
$$;
