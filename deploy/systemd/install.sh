#!/bin/sh
# Installs pgrouse as services of systemd, or updates them: run it again for every new version. It starts no timer.
#
#   install.sh [OPTIONS]
#     --from WHAT       what pip installs: a checkout, a wheel, `pgrouse==1.2.3`          (default: the checkout of this script)
#     --extras LIST     its extras, as uvloop,web,metrics,alerts,otel,schemas,sentry,top,spark,report; '' for none   (default: uvloop,web,metrics,alerts)
#     --python PROGRAM  the Python of the virtual environment, 3.11 or newer             (default: python3)
#     --uninstall       remove the services and the program; the configuration and the user stay
#     --purge           with --uninstall: also remove the configuration and the user
#     --dry-run         print what would be done
#
# Creates the user pgrouse, /opt/pgrouse/venv, /etc/pgrouse and the units in /etc/systemd/system. Existing files in /etc/pgrouse are not
# changed. Running services are stopped gracefully, and started again with the new version; no other service is enabled or started.
# DESTDIR=/somewhere puts everything below that folder and changes no user and no service: for a preview, or for an image.
set -eu
umask 022
# The services cannot write into the folders of the modules.
export UV_COMPILE_BYTECODE="${UV_COMPILE_BYTECODE:-1}"

root=${DESTDIR:-}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
from=$(dirname -- "$(dirname -- "$here")")
extras=uvloop,web,metrics,alerts
python=python3
action=install
purge=no
dry=no

opt=$root/opt/pgrouse
etc=$root/etc/pgrouse
units=$root/etc/systemd/system
link=$root/usr/local/bin/pgrouse
user=pgrouse
# The files of this folder that go to $units, and those of them that can be enabled.
all="pgrouse.service pgrouse@.service pgrouse-web.service
  pgrouse-export.service pgrouse-export.timer pgrouse-report.service pgrouse-report.timer"
enabled="pgrouse.service pgrouse-web.service pgrouse-export.timer pgrouse-report.timer"

main() {
  options "$@"
  check
  if [ "$action" = uninstall ]; then
    uninstall
  else
    install
  fi
}

options() {
  while [ $# -gt 0 ]; do
    case $1 in
      --from | --extras | --python)
        [ $# -gt 1 ] || usage "$1 needs a value"
        case $1 in
          --from) from=$2 ;;
          --extras) extras=$2 ;;
          --python) python=$2 ;;
        esac
        shift
        ;;
      --uninstall) action=uninstall ;;
      --purge) purge=yes ;;
      --dry-run) dry=yes ;;
      -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0" && exit 0 ;;
      *) usage "no such option: $1" ;;
    esac
    shift
  done
  [ "$purge" = no ] || [ "$action" = uninstall ] || usage "--purge goes with --uninstall"
}

usage() {
  echo "install.sh: $1; see --help" >&2
  exit 2
}

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

# The checks before anything is changed.
check() {
  if [ "$dry" = no ] && [ -z "$root" ] && [ "$(id -u)" != 0 ]; then
    fail "it needs root: use sudo, or try it with --dry-run or DESTDIR=/tmp/somewhere"
  fi
  [ "$action" = install ] || return 0
  requirement=$(requirement)
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "$python is not a Python 3.11 or newer: name one with --python"
  command -v uv >/dev/null || "$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python cannot make virtual environments: apt-get install python3-venv, or install uv"
  [ -n "$root" ] || [ "$dry" = yes ] || case $("$python" -c 'import os, sys; print(os.path.realpath(sys.base_prefix))') in
    /home/* | /root/*) fail "$python lies in a home, which services cannot see (ProtectHome): name another one with --python" ;;
  esac
}

install() {
  make_user
  running=$(running_services)
  # Run this even if a step fails: services that were running should run again.
  trap 'start "$running"' EXIT
  stop "$running"
  install_program
  install_configuration
  install_units
  say_what_is_next
}

uninstall() {
  stop "$(running_services)"
  ! has_systemd || for unit in $enabled; do
    [ ! -e "$units/$unit" ] || run systemctl disable --quiet "$unit"
  done
  for unit in $all; do
    run rm -f "$units/$unit"
  done
  [ ! -L "$link" ] || run rm -f "$link"
  run rm -rf "$opt"
  reload_units
  [ "$purge" = no ] || forget
}

# The passwords are deleted with the configuration.
forget() {
  run rm -rf "$etc" "$root/var/lib/pgrouse"
  if [ -z "$root" ] && id "$user" >/dev/null 2>&1; then
    run userdel "$user"
  fi
}

make_user() {
  [ -z "$root" ] || return 0
  id "$user" >/dev/null 2>&1 ||
    run useradd --system --user-group --home-dir /var/lib/pgrouse --no-create-home --shell /usr/sbin/nologin "$user"
}

# Whether systemd runs here and should be used: it does not run while an image is built.
has_systemd() {
  [ -z "$root" ] && [ -d /run/systemd/system ]
}

reload_units() {
  has_systemd || return 0
  run systemctl daemon-reload
}

# The names of the running pgrouse services, including instances.
running_services() {
  has_systemd || return 0
  systemctl list-units --plain --no-legend --state=active,activating,reloading 'pgrouse.service' 'pgrouse@*.service' 'pgrouse-web.service' \
    'pgrouse-export.service' 'pgrouse-report.service' |
    awk '{print $1}'
}

# A running daemon must not find the files of another version when it imports its next module.
stop() {
  # shellcheck disable=SC2086 # several names
  [ -z "$1" ] || run systemctl stop $1
}

start() {
  # shellcheck disable=SC2086
  [ -z "$1" ] || run systemctl start $1
}

install_program() {
  run mkdir -p "$opt"
  if command -v uv >/dev/null; then
    [ -x "$opt/venv/bin/python" ] || run uv venv --quiet --no-project --python "$python" "$opt/venv"
    run uv pip install --quiet --python "$opt/venv/bin/python" --upgrade-package pgrouse --reinstall-package pgrouse "$requirement"
  else
    [ -x "$opt/venv/bin/python" ] || run "$python" -m venv "$opt/venv"
    run "$opt/venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "$requirement"
  fi
  run mkdir -p "${link%/*}"
  [ -e "$link" ] && [ ! -L "$link" ] || run ln -sfn /opt/pgrouse/venv/bin/pgrouse "$link"
}

# The argument of pip: a name or a file, with the extras.
requirement() {
  case $from in
    /*) wanted="pgrouse${extras:+[$extras]} @ file://$from" ;;
    ./* | ../* | *.whl) wanted="pgrouse${extras:+[$extras]} @ file://$(CDPATH='' cd -- "$(dirname -- "$from")" && pwd)/$(basename -- "$from")" ;;
    pgrouse*) wanted="pgrouse${extras:+[$extras]}${from#pgrouse}" ;;
    *) fail "--from $from is neither a path nor pgrouse with a version: write ./$from for a folder" ;;
  esac
  echo "$wanted"
}

install_configuration() {
  run mkdir -p "$etc"
  # shellcheck disable=SC2016 # for the inner shell
  [ -e "$etc/pgrouse.toml" ] || run sh -c '"$1" init "$2" >/dev/null' sh "$opt/venv/bin/pgrouse" "$etc"
  secret pg_service.conf
  secret web.pg_service.conf
  secret pipeline.pg_service.conf
  [ -e "$etc/environment" ] || run cp "$here/environment.example" "$etc/environment"
}

# Copies the example of a file that will contain a password, if the file does not exist. Its mode is set before it has contents.
secret() {
  [ -e "$etc/$1" ] && return 0
  # shellcheck disable=SC2016
  run sh -c 'umask 077 && cp "$1" "$2"' sh "$here/$1.example" "$etc/$1"
  run chmod 600 "$etc/$1"
}

install_units() {
  run mkdir -p "$units"
  for unit in $all; do
    run cp "$here/$unit" "$units/$unit"
    run chmod 644 "$units/$unit"
  done
  reload_units
}

say_what_is_next() {
  cat <<TEXT
pgrouse is in $opt/venv. The next steps, the first time:
  $etc/pg_service.conf     where the database is; $etc/web.pg_service.conf for the web server
  $etc/pgrouse.toml        which handlers process which topics; the modules next to it
  PGSERVICEFILE=/etc/pgrouse/pg_service.conf PGSERVICE=pgrouse pgrouse migrate     as a user who may create the schema
  systemctl enable --now pgrouse pgrouse-web
  systemctl enable --now pgrouse-export.timer pgrouse-report.timer     with the extras spark and report, and $etc/pipeline.pg_service.conf
TEXT
}

run() {
  if [ "$dry" = yes ]; then
    echo "would run: $*"
  else
    "$@"
  fi
}

main "$@"
