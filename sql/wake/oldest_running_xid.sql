-- Every transaction with a lower id than this has ended, and what it committed is visible to the statements that follow.
-- Called by: workers before the claim that decides whether to sleep. Locks: nothing.
CREATE OR REPLACE FUNCTION messages.oldest_xid()
RETURNS bigint
LANGUAGE sql
STABLE
AS $$
  SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::pg_catalog.text::bigint
$$;
