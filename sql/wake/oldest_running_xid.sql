-- Returns a transaction id: every transaction with a lower id has ended, and what it committed is visible to the
-- statements that follow.
--
-- Errors: none.
-- Locks: none.
-- Called by: workers before the claim that decides whether to sleep.
CREATE OR REPLACE FUNCTION messages.oldest_running_xid()
RETURNS bigint
LANGUAGE sql
STABLE
AS $$
  SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::pg_catalog.text::bigint
$$;
