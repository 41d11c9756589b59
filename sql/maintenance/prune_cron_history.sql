-- Delete old runs of pgrouse's own pg_cron jobs, which pg_cron would keep forever. Runs of other jobs are not touched.
-- Called by: pg_cron once a day, where it keeps its jobs in this very database; elsewhere sql/cron/prune_elsewhere.sql
-- does the same. p_keep: older runs are deleted, at most p_limit rows per call. However long runs are kept, at most
-- 20,000 remain: a run that never began (no connection) has no time.
-- Locks: the rows it deletes. Result: how many. Without pg_cron, or without the right to read its table, it does
-- nothing. It runs with the caller's rights, so that pg_cron's row security applies: it shows everyone but superusers
-- only their own jobs.
CREATE OR REPLACE FUNCTION messages.prune_cron_history(p_keep interval DEFAULT '7 days', p_limit integer DEFAULT 10000)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_did bigint;
BEGIN
  IF NOT coalesce(has_schema_privilege(to_regnamespace('cron')::oid, 'USAGE'), false) THEN
    RETURN 0;
  END IF;
  -- Another table of this name could have a trigger, which would run with the caller's rights.
  IF NOT EXISTS (
    SELECT FROM pg_depend AS d
    JOIN pg_extension AS e ON e.oid = d.refobjid
    WHERE d.classid = 'pg_class'::regclass AND d.objid = to_regclass('cron.job_run_details')
      AND d.refclassid = 'pg_extension'::regclass AND e.extname = 'pg_cron'
  ) THEN
    RETURN 0;
  END IF;

  EXECUTE $delete$
    WITH ours AS (
      SELECT d.runid, d.start_time, row_number() OVER (ORDER BY d.runid DESC) AS place
      FROM cron.job_run_details AS d
      WHERE starts_with(d.command, '/* pgrouse */')
    )
    DELETE FROM cron.job_run_details AS d
    WHERE d.runid IN (
      SELECT o.runid
      FROM ours AS o
      WHERE o.place > 20000
        OR o.runid <= (SELECT max(old.runid) FROM ours AS old WHERE old.start_time < clock_timestamp() - $1)
      ORDER BY o.runid
      LIMIT $2)
  $delete$ USING p_keep, p_limit;
  GET DIAGNOSTICS v_did = ROW_COUNT;
  RETURN v_did;
END
$$;
