"""Connections of asyncpg, including those of its pools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pgrouse.database.schema_name import SchemaName
from pgrouse.publishing.copy_rows import CopyPart
from pgrouse.publishing.drivers.driver import Driver, Row
from pgrouse.publishing.statement import Statement


class Asyncpg(Driver):
    """A connection.

    COPY takes text: the binary form would need the right to read the columns, and the caller's codecs.
    """

    is_async = True

    def __init__(self, conn: Any, schema: SchemaName) -> None:
        self.conn, self.schema = conn, schema

    async def fetch_row(self, statement: Statement) -> Row | None:
        """Execute a statement, return its first row."""
        sql, values = statement.with_dollars(self.schema)
        found = await self.conn.fetchrow(sql, *values)
        return None if found is None else tuple(found)

    @asynccontextmanager
    async def bulk(self) -> AsyncIterator[Driver]:
        """Begin a block that is done as a whole or not at all."""
        async with self.conn.transaction():
            yield self

    async def copy_in(self, part: CopyPart) -> int:
        """Insert many rows by COPY."""
        status: str = await self.conn.copy_to_table(
            "message", schema_name=self.schema.name, columns=part.columns, source=_blocks(part), encoding="UTF8"
        )
        return int(status.rpartition(" ")[2])


async def _blocks(part: CopyPart) -> AsyncIterator[bytes]:
    for block in part.blocks():
        yield block
