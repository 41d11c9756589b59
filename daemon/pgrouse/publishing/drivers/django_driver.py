"""Connections of Django, on psycopg 3 and psycopg2: `connection`, `connections["replica"]`.

They join `transaction.atomic()`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from pgrouse.database.schema_name import SchemaName
from pgrouse.publishing.drivers import find_driver
from pgrouse.publishing.drivers.driver import Driver, Row
from pgrouse.publishing.statement import Statement

JOIN = Statement("SELECT 1", {})


class Django(Driver):
    """A connection; each thread has its own."""

    def __init__(self, conn: Any, schema: SchemaName) -> None:
        if conn.vendor != "postgresql":
            raise TypeError(f"publish needs a connection to PostgreSQL, and this one of Django leads to {conn.vendor}")
        self.conn, self.schema = conn, schema

    async def fetch_row(self, statement: Statement) -> Row | None:
        """Execute a statement, return its first row."""
        with self.conn.cursor() as cursor:
            cursor.execute(*statement.with_names(self.schema))
            row: Row | None = cursor.fetchone()
            return row

    async def below(self) -> Driver:
        """Return the driver of the connection of psycopg 3 below."""
        await self.fetch_row(JOIN)  # connects, and begins the transaction of atomic()
        return find_driver(self.conn.connection, self.schema) or self

    @asynccontextmanager
    async def bulk(self) -> AsyncIterator[Driver]:
        """Begin a block that is done as a whole or not at all."""
        below = await self.below()
        if below is not self:
            with self.conn.wrap_database_errors:
                async with below.bulk() as it:
                    yield it
        else:
            with self._atomic():
                yield self

    def _atomic(self) -> AbstractContextManager[None]:
        from django.db import transaction  # noqa: PLC0415 - the application's own

        block: AbstractContextManager[None] = transaction.atomic(using=self.conn.alias)
        return block
