"""Databases for tests."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from pgrouse import devdb, search_path, session_settings
from pgrouse.connection_schema import rendering
from pgrouse.install import schema
from pgrouse.testing.database_url import DatabaseUrl

# The name of a test database, as frameworks usually choose it.
OF_TESTS = re.compile(r"(^|[_-])(py)?tests?([_-]|\d|$)", re.IGNORECASE)
# Tables that migrations fill.
KEPT_TABLES = ("migration", "topic", "low_water_mark", "alert_threshold", "mutex")


@contextmanager
def database(dsn: str | None = None) -> Iterator[DatabaseUrl]:
    """Create a database with the schema of pgrouse, yield its URL, and drop it at the end.

    The URL is a str that psycopg and asyncpg connect with; SQLAlchemy reads `url.url("postgresql+asyncpg")`.

    Args:
        dsn: a server on which this role may create databases. Default: $PGROUSE_TEST_DSN, or a PostgreSQL of this
            machine that is found as `pgrouse demo` finds one, started, and stopped at the end.

    Raises:
        DatabaseUnreachable: there is no server; the text says what to do.
    """
    server = devdb.find("testing", dsn or os.environ.get("PGROUSE_TEST_DSN"), database="postgres")
    was_started = server.start()
    name = f"pgrouse_test_{secrets.token_hex(6)}"
    try:
        _run(server.dsn(), sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            with session_settings.set_up(psycopg.connect(server.dsn(name), autocommit=True)) as conn:
                schema.migrate(conn)
            yield DatabaseUrl.of(server.dsn(name))
        finally:
            _run(server.dsn(), sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
    finally:
        if was_started:
            server.stop()


def clean(conn: psycopg.Connection, *, database: str | None = None) -> None:
    """Empty the queue between tests: messages, archive, policies, schedules and all counters.

    It is committed with the connection's transaction.

    Args:
        conn: a connection to a test database in which no worker runs.
        database: the name of the database, needed if `test` is not a part of the name, as it is in test_shop and
            shop_tests.

    Raises:
        RuntimeError: it is another database, or a worker runs in it and would lose its policies and schedules; nothing
            was deleted.
    """
    with conn.transaction(), search_path.fixed(conn), rendering(conn):
        _check_name(conn, database)
        # From here on no worker can start.
        conn.execute("LOCK TABLE messages.worker IN ACCESS EXCLUSIVE MODE")
        _check_no_worker(conn)
        names = conn.execute(
            """
            SELECT c.relname FROM pg_class AS c
            WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
              AND c.relname <> ALL (%s)
            """,
            [list(KEPT_TABLES)],
        ).fetchall()
        tables = sql.SQL(", ").join(sql.Identifier("messages", name) for (name,) in names)
        # Delete this first: the deletion is audited.
        conn.execute("DELETE FROM messages.topic WHERE topic <> '*'")
        conn.execute(sql.SQL("TRUNCATE {}").format(tables))
        conn.execute("DELETE FROM messages.mutex WHERE name <> ''")


def _check_name(conn: psycopg.Connection, database: str | None) -> None:
    name = conn.info.dbname
    if database is None and not OF_TESTS.search(name):
        raise RuntimeError(
            f"clean() deletes all messages, policies and schedules, and the database {name} is none of tests by "
            "its name: connect to one of "
            f'testing.database(), or say that it is one: clean(conn, database="{name}")'
        )
    if database not in (None, name):
        raise RuntimeError(f"clean(database={database!r}): the connection is one to the database {name}")


def _check_no_worker(conn: psycopg.Connection) -> None:
    found = conn.execute("SELECT name, host, pid, kind FROM messages.worker_state WHERE alive ORDER BY name").fetchall()
    if alive := [f"{name} ({host}, process {pid})" for name, host, pid, kind in found if not _is_dead(host, pid, kind)]:
        raise RuntimeError(
            f"clean() deletes the policies and schedules of workers, and in the database {conn.info.dbname} "
            f"run {', '.join(alive)}: "
            "stop them before, as the fixture pgrouse_worker does at the end of its test, "
            "and give them a database of their own if they "
            "live longer than a test"
        )


def _is_dead(host: str, pid: int, kind: str) -> bool:
    """Whether the process of a worker has certainly ended, for example because a test killed it."""
    if kind != "daemon" or host != socket.gethostname():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _run(dsn: str, statement: sql.Composed) -> None:
    with session_settings.set_up(psycopg.connect(dsn, autocommit=True)) as conn:
        conn.execute(statement)
