-- How long the oldest transaction of this database has kept vacuum from removing rows, in seconds.
-- Called by: the metrics of the web server. Locks: nothing. Result: 0 if there is none; NULL if the owner of the schema may not see the
-- sessions of others (migrate gives it pg_read_all_stats if it may).
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
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND num_nonnulls(a.backend_xmin, a.backend_xid) > 0
      AND a.backend_type <> 'autovacuum worker'
    UNION ALL
    SELECT p.prepared FROM pg_prepared_xacts AS p WHERE p.database = current_database()
  ) AS h
$$;
