-- Settles messages whose handlers wait for an event. Nothing failed: the lock is released and the attempt is not
-- counted. Each message comes back when `messages.signal` gives it the event, or when its time is over: then
-- `messages.load_events` returns the event, or the time-out. If the event has come already, it comes back at once.
-- While it waits it uses no place in a limit, and its time to live goes on; in an `ordered` topic its channel waits
-- for it. Keys: as for `messages.defer`.
--
-- Arguments: `p_names`: the events. `p_numbers`: how many waits for an event of this name the handler has begun, with
-- this one. `p_timeouts`: how long each waits at most, cut to 1,000 years; NULL = without a limit. The time counts
-- from the first settle of this wait: a wait that is interrupted and begins again keeps its end.
-- Result: the ids whose lock was lost; nothing was changed for them.
-- Errors: 22023 for an invalid name; 25001 above READ COMMITTED, where it could not see that a signal has come;
-- otherwise as `messages.defer`.
-- Locks: as `messages.defer`; and signals for the messages, without waiting: while one is being given, the message
-- comes back after a second.
-- Called by: workers.
-- Inside: The lock of signals orders the two: either the signal is committed and seen here, or it sees the message
-- wait.
CREATE OR REPLACE FUNCTION messages.wait_for_event(
  p_ids       bigint[],
  p_claim_ids bigint[],
  p_names     text[],
  p_numbers   bigint[],
  p_timeouts  interval[] DEFAULT NULL
)
RETURNS bigint[]
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_untils timestamptz[];
BEGIN
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION 'wait_for_event needs READ COMMITTED: this transaction cannot see which signals have come'
      USING ERRCODE = '25001', HINT = 'settle in a transaction with ISOLATION LEVEL READ COMMITTED';
  END IF;
  PERFORM messages.check_event_name(e.name) FROM unnest(p_ids, p_names) AS e (id, name);
  v_untils := ARRAY(
    SELECT messages.begin_wait(e.id, e.claim_id, e.name, e.number, e.timeout)
    FROM unnest(p_ids, p_claim_ids, p_names, p_numbers, p_timeouts)
      WITH ORDINALITY AS e (id, claim_id, name, number, timeout, place)
    ORDER BY e.place);
  PERFORM messages.raise_awaited_flag();
  RETURN messages.lost_ids(
    p_ids, p_claim_ids,
    messages.return_attempts(p_ids, p_claim_ids, NULL, v_untils, NULL, 'waiting'), NULL);
END
$$;

-- Record what a message waits for, and until when: as one row per message, for the wait that it is in.
-- Called by: wait_for_event, before it releases the lock. Locks: signals for the message, without waiting. Result:
-- when it comes back, unless a signal comes first.
CREATE OR REPLACE FUNCTION messages.begin_wait(
  p_id bigint, p_claim_id bigint, p_name text, p_number bigint, p_timeout interval
)
RETURNS timestamptz
LANGUAGE plpgsql
AS $$
DECLARE
  v_now   timestamptz := messages.now();
  v_until timestamptz;
BEGIN
  INSERT INTO messages.step AS s (message_id, name, result, attempt, claim_id)
  SELECT m.id, 'event:wait',
         jsonb_build_object(
           'name', p_name, 'number', p_number,
           'until', CASE WHEN p_timeout IS NOT NULL THEN v_now + greatest('0', least(p_timeout, '1000 years')) END),
         m.attempts, m.claim_id
  FROM messages.message AS m
  WHERE m.id = p_id AND m.claim_id = p_claim_id
  ON CONFLICT (message_id, name) DO UPDATE
    SET result = excluded.result, attempt = excluded.attempt, kept_at = excluded.kept_at, claim_id = excluded.claim_id
    WHERE s.result -> 'name' <> excluded.result -> 'name' OR s.result -> 'number' <> excluded.result -> 'number';
  SELECT (s.result ->> 'until')::timestamptz INTO v_until
  FROM messages.step AS s WHERE s.message_id = p_id AND s.name = 'event:wait';
  IF NOT messages.lock_mutex('event', p_id::text) THEN
    RETURN v_now + interval '1 s';
  END IF;
  IF messages.count_events(p_id, p_name) >= p_number THEN
    RETURN v_now;
  END IF;
  RETURN greatest(v_now, coalesce(v_until, v_now + interval '1000 years'));
END
$$;
