#!/usr/bin/env bash
# Schedules pg_cron's jobs for a queue in the same database, with nothing but psql: what `pgrouse cron install` does, which also fixes them later.
#
#   install-cron.sh [FOLDER]      FOLDER holds sql/ (default: the folder of this script)
#
# Where to is said by PGHOST, PGPORT, PGUSER, PGDATABASE ... The user must be a superuser.
set -euo pipefail
cron=${1:-$(dirname "$0")}/sql/cron

# Anyone who may create objects in a schema of the path would decide what a superuser's statements call: the path is fixed before any name. And
# anyone who may create schemas would, if the schema cron were not that of the extension.
psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --single-transaction --output=/dev/null --set=jobs="$(<"$cron/jobs.sql")" \
  --command="SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE" --file="$cron/../session.sql" --file="$cron/role.sql" --file=- <<'SQL'
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_extension AS e WHERE e.extname = 'pg_cron') THEN
    RAISE EXCEPTION 'database "%" has no extension pg_cron', current_database() USING HINT = 'CREATE EXTENSION pg_cron in the database that cron.database_name names';
  END IF;
END
$$;
GRANT USAGE ON SCHEMA cron TO messages_cron;
SELECT cron.schedule_in_database(w.name, w.schedule, w.command, current_database(), 'messages_cron')
FROM (
  :jobs
) AS w;
SQL
