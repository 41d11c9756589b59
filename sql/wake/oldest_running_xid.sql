-- The oldest transaction id that may still run: every transaction with a lower id has ended, and the following statements see what it
-- committed.
-- Called by: workers before the claim that decides whether to sleep. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.oldest_running_xid()
RETURNS bigint
LANGUAGE sql
STABLE
AS $$
  SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::pg_catalog.text::bigint
$$;
