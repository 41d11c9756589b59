-- A new transaction id, greater than that of every INSERT that could not see a flag committed before.
-- Called by: workers after arm, in a separate transaction. Locks: nothing, and no flush: nothing else is written.
-- Not pg_snapshot_xmax: that is the last *completed* id + 1, and a running INSERT may be beyond it.
CREATE OR REPLACE FUNCTION messages.draw_xid()
RETURNS bigint
LANGUAGE sql
AS $$
  SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint
$$;
