"""The schema, installed by the code of an application or of its tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from pgrouse.database import session_settings
from pgrouse.database.connection_schema import rendering
from pgrouse.database.install import schema as installation
from pgrouse.database.schema_name import use_schema
from pgrouse.errors import DatabaseUnreachable
from pgrouse.publishing.drivers.connection_types import DjangoConnection, SqlalchemyConnection

# What the installation sets for the rest of the transaction.
SETTINGS = (
    "lock_timeout",
    "transaction_timeout",
    *re.findall(r"SET LOCAL ([\w.]+)", installation.script("session.sql").decode()),
)

# Only settings that differ are set: a role may read some that it may not set, not even to their own values.
RESTORE = """
    SELECT pg_catalog.set_config(%(name)s, %(value)s, true)
    WHERE pg_catalog.current_setting(%(name)s) OPERATOR(pg_catalog.<>) %(value)s
"""


def migrate(
    where: psycopg.Connection[Any] | SqlalchemyConnection | DjangoConnection | str, *, schema: str | None = None
) -> list[str]:
    """Install the schema of the queue, or bring it up to date.

    Return the names of what was applied: nothing if it is up to date.

    Any number of processes may call this at once. It blocks; where an event loop runs: `await
    asyncio.to_thread(migrate, url)`.

    Args:
        where: a blocking connection of psycopg 3, or one of SQLAlchemy or Django that uses it: everything happens in
            its transaction, as with `publish`; you commit, unless the connection is in autocommit mode. Or a connection
            string: it is committed.
        schema: its name. None = that of `use_schema` or of the environment, else `messages`.

    Raises:
        ValueError: a schema of the queue cannot have this name.
        TypeError: the connection is async, or of another driver.
        DatabaseUnreachable: no connection could be made.
        SchemaMismatch: the schema is newer than this version, or another role must do it; says which.
        MigrationEdited: a migration that was applied has another text now.
        psycopg.errors.LockNotAvailable: another session uses a table of the schema for longer than 5 s; try again.
    """
    with nullcontext() if schema is None else use_schema(schema):
        if isinstance(where, str):
            with _connected(where) as conn:
                return installation.migrate(conn)
        conn = _psycopg_connection(where)
        with _as_usual(conn), rendering(conn), _joined(conn):
            return installation.migrate(conn)


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    try:
        conn = psycopg.connect(dsn, autocommit=True)
    except psycopg.OperationalError as error:
        raise DatabaseUnreachable(f"no connection to PostgreSQL: {' '.join(str(error).split())}") from error
    with session_settings.set_up(conn):
        yield conn


def _psycopg_connection(given: Any) -> psycopg.Connection[Any]:
    """Return the connection of psycopg below the given one; that of SQLAlchemy or Django is opened if it is not."""
    found = given
    if hasattr(given, "ensure_connection"):  # Django
        given.ensure_connection()
        found = given.connection
    elif hasattr(given, "begin_nested") and not hasattr(given, "stream"):  # SQLAlchemy
        connection = given.connection() if callable(given.connection) else given
        found = connection.connection.driver_connection
    if not isinstance(found, psycopg.Connection):
        raise TypeError(
            "migrate needs a blocking connection of psycopg 3, or one of SQLAlchemy or Django that uses it, not a "
            f"{type(found).__module__}.{type(found).__qualname__}: give it a connection string instead"
        )
    return found


@contextmanager
def _as_usual(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Let rows be tuples, whatever the connection is set to."""
    rows, cursors = conn.row_factory, conn.cursor_factory
    conn.row_factory, conn.cursor_factory = tuple_row, psycopg.Cursor
    try:
        yield
    finally:
        conn.row_factory, conn.cursor_factory = rows, cursors


@contextmanager
def _joined(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Join the transaction of the caller, or begin one.

    There is none where the connection is in autocommit mode and outside of a transaction.
    """
    if not conn.autocommit:
        conn.execute(b"SELECT")
    if conn.info.transaction_status is not TransactionStatus.INTRANS:
        yield
        return
    before = [conn.execute("SELECT pg_catalog.current_setting(%s, true)", [name]).fetchone() for name in SETTINGS]
    yield
    for name, value in zip(SETTINGS, before, strict=True):
        if value not in (None, (None,)):  # this version of the server has it
            conn.execute(RESTORE, {"name": name, "value": value[0]})
