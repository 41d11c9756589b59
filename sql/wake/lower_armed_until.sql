-- Lowers the time until which publishes look for sleepers to the end of the last flag that is set. Until then each
-- publish reads the sleepers, and notifies above READ COMMITTED, although no worker sleeps.
--
-- Result: whether it was lowered.
-- Errors: none: PGR00 never leaves it.
-- Locks: `messages.sleeper` in SHARE mode, for a moment, and only if that is free at once.
-- Repeat: safe.
-- Called by: workers, in a transaction after the one with `messages.disarm`: only what is committed counts. The tick
-- does the same for workers that died.
-- Inside: a session that wrote a flag holds a conflicting lock until it commits, and its flag is not visible yet. A
-- session that writes one later reads the sequence after that, and raises it again. The lock is released at once by
-- rolling back the savepoint in which it was taken, which a setval survives. A flag that is taken down counts until
-- that is committed.
CREATE OR REPLACE FUNCTION messages.lower_armed_until()
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
AS $$
DECLARE
  v_until bigint;
  v_did   boolean;
BEGIN
  IF pg_sequence_last_value('messages.armed_until') < extract(epoch FROM clock_timestamp())
    -- Above it the snapshot may be older than a flag.
    OR current_setting('transaction_isolation') <> 'read committed' THEN
    RETURN false;
  END IF;
  BEGIN
    LOCK TABLE messages.sleeper IN SHARE MODE NOWAIT;
    -- A statement of its own: the look must be younger than the lock.
    v_until := (SELECT greatest(1, ceil(extract(epoch FROM max(s.armed_until)))) FROM messages.sleeper AS s);
    v_did := pg_sequence_last_value('messages.armed_until') > v_until;
    IF v_did THEN
      PERFORM setval('messages.armed_until', v_until);
    END IF;
    RAISE EXCEPTION 'done' USING ERRCODE = 'PGR00';
  EXCEPTION
    WHEN lock_not_available THEN RETURN false;
    WHEN SQLSTATE 'PGR00' THEN RETURN v_did;
  END;
END
$$;
