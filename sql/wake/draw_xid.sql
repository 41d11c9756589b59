-- Returns the id of the current transaction, and assigns one if it has none. It is greater than the id of every INSERT
-- that could not see a flag committed before.
--
-- Errors: none.
-- Locks: none.
-- Called by: workers after arm, in a separate transaction.
-- Inside: Not pg_snapshot_xmax: that is the last *completed* id + 1, and a running INSERT may be beyond it.
CREATE OR REPLACE FUNCTION messages.draw_xid()
RETURNS bigint
LANGUAGE sql
AS $$
  SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint
$$;
