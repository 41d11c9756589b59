"""A pgbouncer in front of a server."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
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
admin_users = {user}
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
logfile = {folder}/log
pidfile = {folder}/pid
"""
# In session mode each connection of a client keeps one.
SESSIONS = {"transaction": 5, "statement": 5, "session": 50}


class Pgbouncer:
    """A pgbouncer with all its files in one folder, which the user of the server must be able to enter.

    Attributes:
        dsn: the connection string through it.
    """

    def __init__(self, dsn: str, folder: Path) -> None:
        self.folder = folder
        self._server = conninfo_to_dict(dsn)
        self.dsn = make_conninfo(dsn, host=str(folder), port="6432")

    def start(self, mode: str = "transaction") -> None:
        """Start it, and return when it lets clients in."""
        self._write(mode)
        program = [PROGRAM, *_as_server_user(self.folder), self._settings]
        self._process = subprocess.Popen(program, stderr=subprocess.DEVNULL)
        eventually(lambda: _answers(self.dsn))

    def kill(self) -> None:
        """End it at once; return when it has ended."""
        self._process.kill()
        self._process.wait(10)

    def reload(self, mode: str) -> None:
        """Have it read its settings with another mode, and return when it has: the connections of clients stay open."""
        self._write(mode)
        self._process.send_signal(signal.SIGHUP)
        eventually(lambda: mode in self._modes())

    @property
    def _settings(self) -> Path:
        return self.folder / "pgbouncer.ini"

    def _write(self, mode: str) -> None:
        given = {key: self._server[key] for key in ("host", "port", "user")}
        self._settings.write_text(SETTINGS.format(folder=self.folder, mode=mode, size=SESSIONS[mode], **given))

    def _modes(self) -> set[str]:
        with psycopg.connect(make_conninfo(self.dsn, dbname="pgbouncer"), autocommit=True) as console:
            rows = psycopg.ClientCursor(console).execute("SHOW CONFIG").fetchall()
        return {value for key, value, *_ in rows if key == "pool_mode"}


@contextmanager
def running(dsn: str, mode: str = "transaction") -> Iterator[Pgbouncer]:
    """Run one in front of a server, in a folder that its user may enter: not that of a test.

    Where it is not installed, the test is skipped.
    """
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed: `apt-get install pgbouncer` as root brings it")
    with tempfile.TemporaryDirectory() as folder:
        pgbouncer = Pgbouncer(dsn, Path(folder))
        pgbouncer.start(mode)
        try:
            yield pgbouncer
        finally:
            pgbouncer.kill()


@contextmanager
def in_front_of(dsn: str) -> Iterator[str]:
    """Run one in transaction mode and yield the connection string through it."""
    with running(dsn) as pgbouncer:
        yield pgbouncer.dsn


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
