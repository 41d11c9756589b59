-- The jobs that pg_cron runs for a queue. Each command is one transaction; its first words mark it as ours in pg_cron's
-- history. Read by: pgrouse.cron and docker/postgres/install-cron.sh. To the minute: schedules of seconds need pg_cron
-- 1.5. (In a background worker statement_timeout counts from the start, so there the setting of the role messages_cron
-- applies.)
SELECT j.name, j.schedule, j.command
FROM (VALUES
  ('messages.tick', '* * * * *',
   $$/* pgrouse */ SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '50s'; SELECT messages.tick('cron')$$),
  ('messages.prune_cron_history', '17 3 * * *',
   $$/* pgrouse */ SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '50s'; $$
   || $$SELECT messages.prune_cron_history()$$)
) AS j (name, schedule, command)
