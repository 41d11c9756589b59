"""A private PostgreSQL server from local binaries: its data, its settings, its start and stop."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import make_conninfo

from pgrouse.database import session_settings
from pgrouse.devdb import os_user, postmaster
from pgrouse.devdb.installation import Installation
from pgrouse.errors import DatabaseUnreachable

START_WITHIN_S = 60
SUPERUSER = "postgres"
# For tests: a killed server loses nothing, a power cut may destroy everything. Shared memory is in the data folder, so
# that it is deleted with the data.
FAST_UNSAFE_SETTINGS = {"fsync": "off", "full_page_writes": "off", "dynamic_shared_memory_type": "mmap"}


class PrivateServer:
    """A PostgreSQL server with its own data, reached through a socket that only its user and root can open.

    Args:
        installation: the binaries.
        folder: contains data, log and settings; created if missing. It is bound to the major version of the binaries.
        database: created if missing; pg_cron keeps its jobs in it.
        settings: further lines of `postgresql.conf`, read at each start.
        port: also listen on 127.0.0.1 at this port, for programs that cannot use a socket. A password is needed there;
            `dsn` puts it in.
    """

    def __init__(
        self,
        installation: Installation,
        folder: Path,
        *,
        database: str = "pgrouse",
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "server.log"
        self.socket = os_user.socket_folder(folder)
        self.database = database
        self.pg_cron = installation.pg_cron
        self.installation = installation
        self._settings = {
            "listen_addresses": "127.0.0.1" if port else "",
            "port": str(port or 5432),
            "unix_socket_directories": str(self.socket),
            "max_connections": "200",
            "max_worker_processes": "32",
            **(cron_settings(database) if installation.pg_cron else {}),
            **(settings or {}),
        }

    def __str__(self) -> str:
        return f"private {self.installation}"

    def dsn(self, dbname: str | None = None, user: str = SUPERUSER, **options: str) -> str:
        """Return a connection string for `dbname` (default: `database`).

        `host="127.0.0.1"` gives one for TCP, if the server has a port.
        """
        if "host" in options:
            options = {"password": (self.folder / "password").read_text(), **options}
        where = {
            "host": str(self.socket),
            "port": self._settings["port"],
            "user": user,
            "dbname": dbname or self.database,
        }
        return make_conninfo("", **(where | options))

    def start(self) -> bool:
        """Start the server, create it first if needed, and wait until it answers; return False if it ran already.

        Any number of processes may do this at once: only one starts it.

        Raises:
            DatabaseUnreachable: it cannot be created or started; with the end of the log.
        """
        os_user.server_folder(self.folder)
        os_user.server_folder(self.socket)
        with self._alone():
            if self.running():
                return False
            if not self.data.exists():
                self._make_data()
            self._write_settings()
            self._launch()
            self._make_database()
        return True

    def running(self) -> bool:
        """Return whether the server answers. Wait for a server that is just starting."""
        deadline = time.monotonic() + START_WITHIN_S
        while (answer := self._ping()) is pq.Ping.REJECT and time.monotonic() < deadline:
            time.sleep(0.02)
        return answer is pq.Ping.OK

    def was_killed(self) -> bool:
        """Return whether it ended without being stopped: it, or the whole machine, was killed."""
        return (self.data / "postmaster.pid").exists() and not self.running()

    def stop(self) -> None:
        """End all connections, stop the server and wait for its end; no error if it does not run."""
        postmaster.end(self.data, postmaster.FAST)

    def crash(self) -> None:
        """Stop the server as in a crash: it writes nothing more, and the next start recovers."""
        postmaster.end(self.data, postmaster.IMMEDIATE)

    def kill(self) -> None:
        """Kill the server's first process with -9 and return when it is gone; its children end by themselves."""
        postmaster.end(self.data, postmaster.KILL)

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start the server; `immediate` crashes it first."""
        if immediate:
            self.crash()
        else:
            self.stop()
        self.start()

    def remove(self) -> None:
        """Stop the server at once and delete its data."""
        self.crash()
        os_user.delete(self.folder)

    def _ping(self) -> pq.Ping:
        return pq.Ping(pq.PGconn.ping(self.dsn("postgres", connect_timeout="5").encode()))

    @cached_property
    def _bindir(self) -> Path:
        return os_user.readable(self.installation).bindir

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep out other processes that start this server.

        The server does not inherit the descriptor, so it never holds the lock.
        """
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _make_data(self) -> None:
        """Run initdb under a temporary name and rename.

        An interrupted initdb then leaves nothing that looks finished.
        """
        half, password = self.folder / "data.new", self.folder / "password"
        shutil.rmtree(half, ignore_errors=True)
        password.write_text(secrets.token_urlsafe(24))
        self._give_to_server(password)
        who = ("-U", SUPERUSER, "--pwfile", password, "--auth-local=trust", "--auth-host=scram-sha-256")
        if not self._run("initdb", "-D", half, *who, "--encoding=UTF8", "--no-locale", "--no-sync"):
            raise DatabaseUnreachable(f"initdb of {self.installation} failed: {self._said()}")
        with (half / "postgresql.conf").open("a") as conf:
            conf.write("include = '../settings.conf'\n")
        half.rename(self.data)

    def _write_settings(self) -> None:
        file = self.folder / "settings.conf"
        file.write_text("".join(f"{name} = '{value}'\n" for name, value in self._settings.items()))
        self._give_to_server(file)

    def _launch(self) -> None:
        deadline = time.monotonic() + START_WITHIN_S
        while not self._launched():
            if not self._children_of_a_killed_server_linger() or time.monotonic() > deadline:
                raise DatabaseUnreachable(f"{self} in {self.folder} does not start; its log ends:\n{self._log_tail()}")
            time.sleep(0.1)

    def _launched(self) -> bool:
        postmaster.forget(self.data, self.socket)
        self.log.unlink(missing_ok=True)
        return self._run("pg_ctl", "start", "-D", self.data, "-l", self.log, "-w", "-t", str(START_WITHIN_S))

    def _children_of_a_killed_server_linger(self) -> bool:
        return "shared memory block" in self._log_tail()

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-10:]) if self.log.exists() else self._said()

    def _make_database(self) -> None:
        with session_settings.set_up(psycopg.connect(self.dsn("postgres"), autocommit=True)) as conn:
            if not conn.execute("SELECT FROM pg_database AS d WHERE d.datname = %s", [self.database]).rowcount:
                conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.database)))
        if self.pg_cron:
            with psycopg.connect(self.dsn()) as conn:
                conn.execute("CREATE EXTENSION IF NOT EXISTS pg_cron")

    def _give_to_server(self, file: Path) -> None:
        file.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(file, os_user.server_user().pw_uid, os_user.server_user().pw_gid)

    def _run(self, program: str, *arguments: str | Path) -> bool:
        """Run one of the server's programs as its user; return whether it succeeded.

        It runs without the caller's terminal, folder and PG* variables.
        """
        env = {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}
        command = [self._bindir / program, *arguments]
        # Do not use a pipe: the server would inherit it, and its reader would wait for the server's end.
        with (self.folder / "command.log").open("wb") as said:
            done = subprocess.run(  # noqa: S603 - our own programs
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                check=False,
                cwd="/",
                env=env,
                **os_user.identity(),
            )
        return done.returncode == 0

    def _said(self) -> str:
        return (self.folder / "command.log").read_text(errors="replace").strip()


def cron_settings(database: str) -> dict[str, str]:
    """Return the settings of pg_cron with its jobs in this database."""
    return {
        "shared_preload_libraries": "pg_cron",
        "cron.database_name": database,
        # Otherwise pg_cron connects to localhost through libpq, where no server listens.
        "cron.use_background_workers": "on",
    }
