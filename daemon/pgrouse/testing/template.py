"""Databases for tests, on a PostgreSQL that is there or is started: one for a session, or one for each test."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from pgrouse import devdb
from pgrouse.database import session_settings
from pgrouse.database.install import schema
from pgrouse.devdb.sessions import end_sessions
from pgrouse.testing.database_url import DatabaseUrl

NAME = "testing"
# Autovacuum would visit each database, and delay the copying of the template.
SETTINGS = {**devdb.FAST_UNSAFE_SETTINGS, "autovacuum": "off"}
PREFIX = "pgrouse_test_"


@dataclass(frozen=True)
class DatabaseTemplate:
    """A database that others are copied from. `template` makes it.

    Attributes:
        dsn: its URL. Create the tables of the application in it before the first copy is made; from then on nothing can
            connect to it.
    """

    dsn: DatabaseUrl
    _server: devdb.DatabaseServer
    _name: str

    @contextmanager
    def copy(self) -> Iterator[DatabaseUrl]:
        """Create a database like this one, yield its URL, and drop it at the end, with the sessions in it."""
        with _new_database(self._server, self._name) as (_, url):
            yield url


@contextmanager
def template(dsn: str | None = None) -> Iterator[DatabaseTemplate]:
    """Create a database with the schema of pgrouse, to copy it for each test, and drop it at the end.

    Several processes may do this at once, as those of pytest-xdist: each has its own template on one server.

    Args:
        dsn: a server on which this role may create databases. Default: $PGROUSE_TEST_DSN, or a PostgreSQL of this
            machine that is found as `pgrouse demo` finds one, started, and stopped when no test uses it.

    Raises:
        DatabaseUnreachable: there is no server; the text says what to do.
    """
    given = dsn or os.environ.get("PGROUSE_TEST_DSN")
    server = devdb.find(NAME, given, database="postgres", settings=SETTINGS, in_memory=True)
    with devdb.shared(NAME, server) as is_first:
        if is_first and not given:
            _drop_left_behind(server)
        with _new_database(server) as (name, url):
            with session_settings.set_up(psycopg.connect(url, autocommit=True)) as conn:
                schema.migrate(conn)
            yield DatabaseTemplate(url, server, name)


@contextmanager
def database(dsn: str | None = None) -> Iterator[DatabaseUrl]:
    """Create a database with the schema of pgrouse, yield its URL, and drop it at the end.

    The URL is a str that psycopg and asyncpg connect with; SQLAlchemy reads `url.url("postgresql+asyncpg")`.

    Args:
        dsn: as of `template`.

    Raises:
        DatabaseUnreachable: there is no server; the text says what to do.
    """
    with template(dsn) as made:
        yield made.dsn


@contextmanager
def _new_database(server: devdb.DatabaseServer, template: str | None = None) -> Iterator[tuple[str, DatabaseUrl]]:
    """Create a database, empty or a copy of a template; yield its name and its URL, and drop it at the end."""
    name = f"{PREFIX}{secrets.token_hex(6)}"
    with _maintenance(server) as conn:
        if template is not None:
            _run(conn, "ALTER DATABASE {} ALLOW_CONNECTIONS false", template)
            end_sessions(conn, template)
        # Without flushes this is faster than the other strategy, which writes every page into the WAL.
        _run(conn, "CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy", name, template or "template1")
    try:
        yield name, DatabaseUrl.of(server.dsn(name))
    finally:
        with _maintenance(server) as conn:
            _drop(conn, name)


def _drop_left_behind(server: devdb.DatabaseServer) -> None:
    """Drop the databases of test sessions that were killed."""
    with _maintenance(server) as conn:
        found = conn.execute("SELECT d.datname::text FROM pg_database AS d").fetchall()
        for (name,) in found:
            if name.startswith(PREFIX):
                _drop(conn, name)


def _drop(conn: psycopg.Connection, name: str) -> None:
    end_sessions(conn, name)
    _run(conn, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def _maintenance(server: devdb.DatabaseServer) -> psycopg.Connection:
    return session_settings.set_up(psycopg.connect(server.dsn(), autocommit=True))


def _run(conn: psycopg.Connection, statement: LiteralString, *names: str) -> None:
    conn.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
