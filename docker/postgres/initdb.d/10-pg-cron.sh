#!/usr/bin/env bash
# pg_cron keeps its jobs in one database of the server, which it has to know when the server starts: tell it, restart, make the extension.
set -euo pipefail
export PGUSER=${POSTGRES_USER:-postgres}
# Not as an argument: psql takes a name with `=` for a connection string.
export PGDATABASE=${POSTGRES_DB:-$PGUSER}

psql() { command psql --no-psqlrc --no-password --quiet --set=ON_ERROR_STOP=1 "$@"; }

psql --set=database="$PGDATABASE" <<'SQL'
SET search_path = pg_catalog, pg_temp;
ALTER SYSTEM SET cron.database_name = :'database';
SQL
pg_ctl restart --pgdata="$PGDATA" --mode=fast --wait >/dev/null
psql <<'SQL'
SET search_path = pg_catalog, pg_temp;
CREATE EXTENSION pg_cron;
SQL
