/* pgrouse */ SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL lock_timeout = '2s';
SET LOCAL statement_timeout = '50s';
/* What messages.prune_cron_history() does, as a command: where pg_cron keeps its jobs in another database, it
   has no function of pgrouse. */
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
    OR o.runid <= (SELECT max(old.runid) FROM ours AS old WHERE old.start_time < clock_timestamp() - interval '7 days')
  ORDER BY o.runid
  LIMIT 10000)
