-- Returns how long the oldest transaction of this database has kept vacuum from removing rows, in seconds.
--
-- Result: 0: there is no such transaction. NULL: the owner of the schema may not see other users' sessions; `GRANT
-- pg_read_all_stats TO messages_owner`.
-- Errors: none.
-- Locks: none.
-- Called by: the metrics of the web server.
CREATE OR REPLACE FUNCTION messages.snapshot_age()
RETURNS double precision
LANGUAGE sql
STABLE
SECURITY DEFINER
AS $$
  SELECT CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') THEN
    coalesce(extract(epoch FROM clock_timestamp() - min(h.began_at))::double precision, 0) END
  FROM (
    SELECT a.xact_start AS began_at
    FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
      AND num_nonnulls(a.backend_xmin, a.backend_xid) > 0
      AND a.backend_type <> 'autovacuum worker'
    UNION ALL
    SELECT p.prepared FROM pg_prepared_xacts AS p WHERE p.database = current_database()
  ) AS h
$$;
