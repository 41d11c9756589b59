#!/usr/bin/env bash
# The schema `messages` and pg_cron's jobs for it, unless PGROUSE_INSTALL=off.
set -euo pipefail
export PGUSER=${POSTGRES_USER:-postgres}
export PGDATABASE=${POSTGRES_DB:-$PGUSER}

case ${PGROUSE_INSTALL:-on} in
  on) ;;
  off) exit 0 ;;
  *) echo "PGROUSE_INSTALL is '$PGROUSE_INSTALL': say on or off" >&2; exit 1 ;;
esac
if [[ ${PGROUSE_DATABASE__SCHEMA:-messages} != messages ]]; then
  echo "PGROUSE_DATABASE__SCHEMA is '$PGROUSE_DATABASE__SCHEMA', and this image installs only messages: set PGROUSE_INSTALL=off and run 'pgrouse migrate --cron'" >&2
  exit 1
fi

/usr/share/pgrouse/install-schema.sh
/usr/share/pgrouse/install-cron.sh
