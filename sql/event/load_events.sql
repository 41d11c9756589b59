-- Returns the events that a message has got, to the worker that holds it, and the waits whose time is over. A time-out
-- that it returns is kept: each later attempt gets it too, and a signal that comes after it is for the next wait.
--
-- Result: a row for each event and time-out, in the order in which they came; the nth row of a name belongs to the nth
-- wait for this name. If there are none, one row whose columns are NULL. **No row: the message is not under this
-- claim.** With `strict_lock`, an expired lock is lost too.
-- Errors: none.
-- Locks: the message, FOR KEY SHARE, until the transaction ends: use a separate one. A time-out also locks signals for
-- the message, without waiting; if one is being given at this moment, the wait goes on.
-- Repeat: safe.
-- Called by: workers, when a handler waits for an event.
CREATE OR REPLACE FUNCTION messages.load_events(p_id bigint, p_claim_id bigint)
RETURNS TABLE (name text, payload text, timed_out boolean)
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_attempt integer;
  v_wait    record;
BEGIN
  SELECT m.attempts INTO v_attempt
  FROM messages.message AS m
  WHERE m.id = p_id AND m.claim_id = p_claim_id
    AND (m.lock_expires_at > messages.now() OR NOT messages.has_strict_lock(m.topic))
  FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  SELECT w.result ->> 'name' AS name, (w.result ->> 'number')::integer AS number,
         (w.result ->> 'until')::timestamptz <= messages.now() AS is_over
  INTO v_wait
  FROM messages.step AS w WHERE w.message_id = p_id AND w.name = 'event:wait';
  IF v_wait.is_over AND messages.count_events(p_id, v_wait.name) < v_wait.number
    AND messages.lock_mutex('event', p_id::text)
  THEN
    -- Counted again: a signal may have come before the lock was free.
    INSERT INTO messages.step (message_id, name, result, attempt, claim_id)
    SELECT p_id, 'event:' || coalesce(max(messages.event_number(s.name, v_wait.name)), 0) + 1 || ':' || v_wait.name,
           jsonb_build_object('timed_out', messages.now()), v_attempt, p_claim_id
    FROM messages.step AS s
    WHERE s.message_id = p_id
    HAVING count(messages.event_number(s.name, v_wait.name)) < v_wait.number;
  END IF;
  RETURN QUERY
  SELECT e.name, e.payload, e.timed_out
  FROM (VALUES (1)) AS one (row)
  LEFT JOIN (
    SELECT substring(s.name FROM length('event:' || split_part(s.name, ':', 2) || ':') + 1) AS name,
           (s.result -> 'payload')::text AS payload, s.result ? 'timed_out' AS timed_out,
           split_part(s.name, ':', 2)::integer AS number
    FROM messages.step AS s
    WHERE s.message_id = p_id AND s.name LIKE 'event:%' AND s.name <> 'event:wait'
  ) AS e ON true
  ORDER BY e.number;
END
$$;
