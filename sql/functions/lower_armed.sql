-- Take back what raise_armed has said, down to the last flag that there is: else publishes would look for flags, and ring above READ COMMITTED,
-- until the time comes that was once said; for notify = 'always' that is the year 9000.
-- Called by: prune, last, since arm waits for the lock. Locks: the advisory lock of raise_armed until the transaction ends, tried only: who holds it
-- is about to commit a flag that this cannot see yet. Who raises it later, with a flag of any kind, waits and then sees it lowered.
-- A flag that is taken down counts until that is committed. Result: whether it was lowered.
CREATE OR REPLACE FUNCTION messages.lower_armed()
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  v_until bigint;
BEGIN
  IF pg_sequence_last_value('messages.armed') < extract(epoch FROM clock_timestamp())
    -- Above it the snapshot may be older than a flag.
    OR current_setting('transaction_isolation') <> 'read committed'
    OR NOT pg_try_advisory_xact_lock(hashtextextended('messages.armed', 0)) THEN
    RETURN false;
  END IF;
  -- A statement of its own: the look must be younger than the lock.
  v_until := (SELECT greatest(1, ceil(extract(epoch FROM max(s.armed_until)))) FROM messages.sleeper AS s);
  IF pg_sequence_last_value('messages.armed') <= v_until THEN
    RETURN false;
  END IF;
  PERFORM setval('messages.armed', v_until);
  RETURN true;
END
$$;
