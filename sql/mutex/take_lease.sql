-- Take a name that only one session holds at a time, until the session ends or releases it. It needs a connection of
-- its own, not a pooler's.
-- Called by: lock_export, lock_consumer. Locks: the row of messages.lease, until the transaction ends; waited for one
-- second at the most. An advisory lock shows that the session is alive: see is_lease_alive. (A known key could be held
-- by any role that may connect.) Result: whether it was taken; true if the session already has it.
CREATE OR REPLACE FUNCTION messages.take_lease(p_kind text, p_name text)
RETURNS boolean
LANGUAGE plpgsql
SET lock_timeout = '1s'
AS $$
DECLARE
  v_lease messages.lease;
  v_key   bigint;
BEGIN
  IF p_name IS NULL THEN
    RAISE EXCEPTION 'the name of the % is missing', p_kind USING ERRCODE = '22004';
  END IF;
  LOOP
    SELECT l.* INTO v_lease FROM messages.lease AS l WHERE l.kind = p_kind AND l.name = p_name FOR UPDATE;
    EXIT WHEN FOUND;
    -- The row names a session that does not exist: any session that locks the row next has it.
    INSERT INTO messages.lease (kind, name, lock_key, pid) VALUES (p_kind, p_name, 0, 0) ON CONFLICT DO NOTHING;
  END LOOP;
  IF messages.is_lease_alive(v_lease) THEN
    RETURN v_lease.pid = pg_backend_pid();
  END IF;
  LOOP
    v_key := 1 + floor(random() * 4503599627370496)::bigint;
    EXIT WHEN pg_try_advisory_lock(v_key);
  END LOOP;
  UPDATE messages.lease AS l
  SET lock_key = v_key, pid = pg_backend_pid(), taken_at = clock_timestamp()
  WHERE l.kind = p_kind AND l.name = p_name;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END
$$;
