"""Databases for tests."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from pgrouse import devdb, search_path
from pgrouse.install import schema
from pgrouse.testing.database_url import DatabaseUrl

# Tables that migrations fill.
KEPT_TABLES = ("migration", "topic", "low_water_mark", "alert_threshold", "mutex")


@contextmanager
def database(dsn: str | None = None) -> Iterator[DatabaseUrl]:
    """Create a database with the schema of pgrouse, yield its URL, and drop it at the end.

    The URL is a text that psycopg and asyncpg connect with; `url.url("postgresql+asyncpg")` is what SQLAlchemy reads.

    Args:
        dsn: of a server, where this role may make databases; unless given $PGROUSE_TEST_DSN, else a PostgreSQL of this machine as
            `pgrouse demo` finds one, which is started for this and stopped again.

    Raises:
        DatabaseUnreachable: there is none; says what to do.
    """
    server = devdb.find("testing", dsn or os.environ.get("PGROUSE_TEST_DSN"), database="postgres")
    was_started = server.start()
    name = f"pgrouse_test_{secrets.token_hex(6)}"
    try:
        _run(server.dsn(), sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            with search_path.fix(psycopg.connect(server.dsn(name), autocommit=True)) as conn:
                schema.migrate(conn)
            yield DatabaseUrl.of(server.dsn(name))
        finally:
            _run(server.dsn(), sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
    finally:
        if was_started:
            server.stop()


def clean(conn: psycopg.Connection) -> None:
    """Empty the queue between tests: messages, archive, policies, schedules and all that was counted. Commits, if the connection does."""
    with conn.transaction(), search_path.fixed(conn):
        names = conn.execute(
            """
            SELECT c.relname FROM pg_class AS c
            WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
              AND c.relname <> ALL (%s)
            """,
            [list(KEPT_TABLES)],
        ).fetchall()
        tables = sql.SQL(", ").join(sql.Identifier("messages", name) for (name,) in names)
        # First: that is audited.
        conn.execute("DELETE FROM messages.topic WHERE topic <> '*'")
        conn.execute(sql.SQL("TRUNCATE {}").format(tables))
        conn.execute("DELETE FROM messages.mutex WHERE name <> ''")


def _run(dsn: str, statement: sql.Composed) -> None:
    with search_path.fix(psycopg.connect(dsn, autocommit=True)) as conn:
        conn.execute(statement)
