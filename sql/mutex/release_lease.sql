-- Release a name that this session has taken.
-- Called by: unlock_export. Locks: the row of messages.lease. Result: whether the session had it.
CREATE OR REPLACE FUNCTION messages.release_lease(p_kind text, p_name text)
RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  v_key bigint;
BEGIN
  DELETE FROM messages.lease AS l
  WHERE l.kind = p_kind AND l.name = p_name AND l.pid = pg_backend_pid() AND messages.is_lease_alive(l)
  RETURNING l.lock_key INTO v_key;
  IF v_key IS NULL THEN
    RETURN false;
  END IF;
  RETURN pg_advisory_unlock(v_key);
END
$$;
