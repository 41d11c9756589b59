#!/usr/bin/env bash
# A login for daemons that owns nothing and administers nothing, if PGROUSE_WORKER_PASSWORD (or the file that PGROUSE_WORKER_PASSWORD_FILE names) says its password.
set -euo pipefail
export PGUSER=${POSTGRES_USER:-postgres}
export PGDATABASE=${POSTGRES_DB:-$PGUSER}

PGROUSE_WORKER_PASSWORD=${PGROUSE_WORKER_PASSWORD:-}
if [[ ${PGROUSE_WORKER_PASSWORD_FILE:-} ]]; then
  PGROUSE_WORKER_PASSWORD=$(<"$PGROUSE_WORKER_PASSWORD_FILE")
fi
[[ $PGROUSE_WORKER_PASSWORD ]] || exit 0
if [[ ${PGROUSE_INSTALL:-on} == off ]]; then
  echo "PGROUSE_WORKER_PASSWORD needs the roles of the schema, and PGROUSE_INSTALL is off: leave out one of the two" >&2
  exit 1
fi

# Through the environment: arguments are for everybody to see.
export PGROUSE_WORKER_PASSWORD
psql --no-psqlrc --no-password --quiet --set=ON_ERROR_STOP=1 <<'SQL'
SET search_path = pg_catalog, pg_temp;
\getenv password PGROUSE_WORKER_PASSWORD
-- The server's log must not show the password if the statement fails.
SET log_min_error_statement = panic;
-- messages_analyst: `pgrouse health`, `stats` and `worker list` read who works and what stands where, but no payload.
CREATE ROLE pgrouse_worker LOGIN PASSWORD :'password' IN ROLE messages_worker, messages_publisher, messages_analyst;
SQL
