"""A pgbouncer in transaction mode in front of a server."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.server.deadline import eventually

# Debian installs it in a folder that is only on root's PATH.
PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SETTINGS = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 5
max_client_conn = 200
logfile = {folder}/log
pidfile = {folder}/pid
"""


@contextmanager
def in_front_of(dsn: str, folder: Path) -> Iterator[str]:
    """Run one and yield the connection string through it."""
    given = conninfo_to_dict(dsn)
    settings = folder / "pgbouncer.ini"
    settings.write_text(SETTINGS.format(folder=folder, host=given["host"], port=given["port"], user=given["user"]))
    pooled = make_conninfo(dsn, host=str(folder), port="6432")
    process = subprocess.Popen([PROGRAM, *_as_server_user(folder), settings], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: _answers(pooled))
        yield pooled
    finally:
        process.kill()
        process.wait(10)


def _as_server_user(folder: Path) -> list[str]:
    """It refuses to run as root. Then it runs as the user of the server, which must have access to its folder."""
    if os.geteuid() != 0:
        return []
    postgres = pwd.getpwnam("postgres")
    os.chown(folder, postgres.pw_uid, postgres.pw_gid)
    return ["-u", "postgres"]


def _answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True
