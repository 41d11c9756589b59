-- Returns whether the session that took a lease is still connected.
-- Called by: take_lease, release_lease, prune_mutexes. Locks: nothing. The session holds an advisory lock with a random
-- key: it ends with the session, also when the server crashes, and no session can have held it before. The key of a
-- held lock is public, so another process may take it afterwards; therefore only processes whose user may take leases
-- count.
-- Result: true or false.
CREATE OR REPLACE FUNCTION messages.is_lease_alive(p_lease messages.lease)
RETURNS boolean
LANGUAGE sql
STABLE
AS $$
  SELECT EXISTS (
    SELECT FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.granted AND l.pid = p_lease.pid AND l.objsubid = 1
      AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
      AND l.classid::bigint = p_lease.lock_key >> 32 AND l.objid::bigint = p_lease.lock_key & 4294967295
      AND EXISTS (
        SELECT FROM pg_stat_activity AS s
        JOIN pg_proc AS f ON f.pronamespace = 'messages'::regnamespace AND f.proname = 'lock_' || p_lease.kind
        WHERE s.pid = l.pid AND has_function_privilege(s.usesysid, f.oid, 'EXECUTE')))
$$;
