"""The commands that run or start what goes on in the background: daemon, web server, pg_cron, maintenance, pipeline."""
