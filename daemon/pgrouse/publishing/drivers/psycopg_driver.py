"""Connections of psycopg 3."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from pgrouse.database.connection_schema import schema_of
from pgrouse.database.schema_name import SchemaName
from pgrouse.publishing.copy_rows import CopyPart
from pgrouse.publishing.drivers.driver import Driver, Row
from pgrouse.publishing.statement import Statement

# A SELECT begins the caller's transaction; without it psycopg's transaction block would commit.
BEGIN = b"SELECT"


class Psycopg(Driver):
    """A blocking connection.

    It uses its own cursors: the caller's row and cursor factories would change the results.
    """

    def __init__(self, conn: psycopg.Connection[Any], schema: SchemaName) -> None:
        self.conn, self.schema = conn, schema

    async def fetch_row(self, statement: Statement) -> Row | None:
        """Execute a statement, return its first row."""
        cursor = psycopg.RawCursor(self.conn, row_factory=tuple_row)
        return cursor.execute(*statement.encoded(self.schema)).fetchone()

    @asynccontextmanager
    async def bulk(self) -> AsyncIterator[Driver]:
        """Begin a block that is done as a whole or not at all."""
        if _would_commit(self.conn):
            psycopg.Cursor(self.conn).execute(BEGIN)
        with self.conn.transaction():
            yield self

    async def copy_in(self, part: CopyPart) -> int:
        """Insert many rows by COPYs. During a COPY the connection is busy, and the caller's iterable may need it."""
        count = 0
        with psycopg.Cursor(self.conn) as cursor:
            for blocks in part.copies():
                with cursor.copy(part.copy(self.schema)) as copy:
                    for block in blocks:
                        copy.write(block)
                        self.conn.pgconn.flush()  # libpq would keep it until there are 8 KiB
                count += cursor.rowcount
        return count


class AsyncPsycopg(Driver):
    """The same, awaited."""

    is_async = True

    def __init__(self, conn: psycopg.AsyncConnection[Any], schema: SchemaName) -> None:
        self.conn, self.schema = conn, schema

    async def fetch_row(self, statement: Statement) -> Row | None:
        """Execute a statement, return its first row."""
        cursor = psycopg.AsyncRawCursor(self.conn, row_factory=tuple_row)
        return await (await cursor.execute(*statement.encoded(self.schema))).fetchone()

    @asynccontextmanager
    async def bulk(self) -> AsyncIterator[Driver]:
        """Begin a block that is done as a whole or not at all."""
        if _would_commit(self.conn):
            await psycopg.AsyncCursor(self.conn).execute(BEGIN)
        async with self.conn.transaction():
            yield self

    async def copy_in(self, part: CopyPart) -> int:
        """Insert many rows by one COPY.

        The caller's iterable cannot await the connection, and the loop runs other tasks between blocks.
        """
        async with psycopg.AsyncCursor(self.conn) as cursor:
            async with cursor.copy(part.copy(self.schema)) as copy:
                for block in part.blocks():
                    await copy.write(block)
                    self.conn.pgconn.flush()  # as above
            return cursor.rowcount


def _would_commit(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Return whether a transaction block would be the whole transaction of a caller who commits."""
    return not conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE


def psycopg_cursor(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any], _: SchemaName) -> Driver:
    """Return the driver of a cursor's connection, for the schema of that connection."""
    conn = cursor.connection
    schema = schema_of(conn)
    return AsyncPsycopg(conn, schema) if isinstance(conn, psycopg.AsyncConnection) else Psycopg(conn, schema)
