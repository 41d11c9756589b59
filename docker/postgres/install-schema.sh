#!/usr/bin/env bash
# Installs the schema `messages` into an empty database with nothing but psql: the same scripts in the same order, under the same lock, and with
# the same entries in the ledger as `pgrouse migrate`, which afterwards finds nothing to do and makes every later change.
#
#   install-schema.sh [FOLDER]      FOLDER holds sql/ and pyproject.toml (default: the folder of this script)
#
# Where to is said by PGHOST, PGPORT, PGUSER, PGDATABASE ... Everything happens in one transaction.
set -euo pipefail
export LC_ALL=C # the order of the file names

folder=${1:-$(dirname "$0")}
sql=$folder/sql
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$folder/pyproject.toml")
[[ $version ]] || { echo "install-schema: no version in $folder/pyproject.toml" >&2; exit 1; }

# Prints the psql commands that run one script and write it into the ledger: apply KIND FILE
apply() {
  local digest
  digest=$(sha256sum <"$2")
  printf "\\\\i '%s'\n" "$2"
  printf "INSERT INTO messages.migration (kind, name, digest, version) VALUES ('%s', '%s', '%s', '%s');\n" \
    "$1" "$(basename "$2" .sql)" "${digest%% *}" "$version"
}

# Prints the commands for each script of a folder: apply_all KIND FOLDER
apply_all() {
  local file
  for file in "$sql/$2"/*.sql; do
    apply "$1" "$file"
  done
}

# Prints the commands for the scripts of all other folders together, by the names of the files; views, which need the functions that they call, last.
apply_objects() {
  local file is_view
  for file in "$sql"/*/*.sql; do
    case $file in "$sql"/constraints/* | "$sql"/migrations/* | "$sql"/cron/*) continue ;; esac
    is_view=0
    if grep -q '^CREATE OR REPLACE VIEW ' "$file"; then is_view=1; fi
    printf '%s %s\t%s\n' "$is_view" "${file##*/}" "$file"
  done | sort | while IFS=$'\t' read -r _ file; do
    apply object "$file"
  done
}

installation() {
  echo "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;"
  # Before any name: anyone who may create objects in a schema of the path would decide what a superuser's statements call.
  echo "\\i '$sql/session.sql'"
  cat <<'SQL'
SELECT pg_advisory_xact_lock(31638938585494373); -- "pgrouse"
DO $$
BEGIN
  IF to_regnamespace('messages') IS NOT NULL THEN
    RAISE EXCEPTION 'database "%" has a schema "messages" already', current_database() USING HINT = 'bring it up to date with `pgrouse migrate`';
  END IF;
END
$$;
SQL
  echo "\\i '$sql/roles.sql'"
  # A superuser hands the schema to messages_owner; anyone else owns it himself.
  cat <<'SQL'
SELECT CASE WHEN r.rolsuper THEN 'messages_owner' ELSE r.rolname END AS owner FROM pg_roles AS r WHERE r.rolname = current_user \gset
SET LOCAL ROLE :"owner";
-- An error if another role was faster: what it has put there would run with the rights of a superuser.
CREATE SCHEMA messages;
SQL
  echo "\\i '$sql/ledger.sql'"
  # What constraints of tables call comes before the tables.
  apply_all object constraints
  apply_all migration migrations
  apply_objects
  echo "\\i '$sql/settings.sql'"
  echo "SELECT messages.maintain_partitions();"
  echo "\\i '$sql/grants.sql'"
  echo "RESET ROLE;"
}

installation | psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --single-transaction --output=/dev/null --file=-
