#!/usr/bin/env bash
# A login for the web server, if PGROUSE_WEB_PASSWORD (or the file that PGROUSE_WEB_PASSWORD_FILE names) says its password.
set -euo pipefail
export PGUSER=${POSTGRES_USER:-postgres}
export PGDATABASE=${POSTGRES_DB:-$PGUSER}

PGROUSE_WEB_PASSWORD=${PGROUSE_WEB_PASSWORD:-}
if [[ ${PGROUSE_WEB_PASSWORD_FILE:-} ]]; then
  PGROUSE_WEB_PASSWORD=$(<"$PGROUSE_WEB_PASSWORD_FILE")
fi
[[ $PGROUSE_WEB_PASSWORD ]] || exit 0
if [[ ${PGROUSE_INSTALL:-on} == off ]]; then
  echo "PGROUSE_WEB_PASSWORD needs the roles of the schema, and PGROUSE_INSTALL is off: leave out one of the two" >&2
  exit 1
fi

# Through the environment: arguments are for everybody to see.
export PGROUSE_WEB_PASSWORD
psql --no-psqlrc --no-password --quiet --set=ON_ERROR_STOP=1 <<'SQL'
SET search_path = pg_catalog, pg_temp;
\getenv password PGROUSE_WEB_PASSWORD
-- The server's log must not show the password if the statement fails.
SET log_min_error_statement = panic;
-- It acts for operators, publishers and workers; which of them a caller may be is said by his token.
CREATE ROLE pgrouse_web LOGIN PASSWORD :'password' IN ROLE messages_operator, messages_publisher, messages_worker;
SQL
