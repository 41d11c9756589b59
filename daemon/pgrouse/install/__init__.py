"""Install the schema and the jobs of pg_cron, and bring them up to date."""
