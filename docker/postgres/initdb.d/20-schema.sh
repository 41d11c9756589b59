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

/usr/share/pgrouse/install-schema.sh
/usr/share/pgrouse/install-cron.sh
