"""Installs the schema and the jobs of pg_cron, and updates them."""
