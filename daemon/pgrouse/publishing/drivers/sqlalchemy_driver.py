"""Connections and sessions of SQLAlchemy, on any driver of PostgreSQL.

Statements go through SQLAlchemy, which knows in which form its driver takes their values. Many rows go by COPY if the
driver below is psycopg or asyncpg, otherwise by INSERTs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from pgrouse.database.schema_name import SchemaName
from pgrouse.publishing.drivers import find_driver
from pgrouse.publishing.drivers.driver import Driver, Row
from pgrouse.publishing.statement import Statement

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect, TextClause
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

JOIN = Statement("SELECT 1", {})
# On a connection that streams its results every statement becomes a cursor, and an INSERT cannot be one.
AT_ONCE = {"stream_results": False}


class Sqlalchemy(Driver):
    """A blocking connection."""

    def __init__(self, conn: Connection, schema: SchemaName) -> None:
        _check(conn.dialect)
        self.conn, self.schema = conn, schema

    async def fetch_row(self, statement: Statement) -> Row | None:
        """Execute a statement, return its first row."""
        sql, values = statement.with_colons(self.schema)
        return _row(self.conn.execute(_text(sql), values, execution_options=AT_ONCE).first())

    async def below(self) -> Driver:
        """Return the driver of the connection of psycopg below."""
        await self.fetch_row(JOIN)  # SQLAlchemy must know that its transaction has begun
        found = find_driver(self.conn.connection.driver_connection, self.schema)
        return self if found is None or found.is_async else found

    @asynccontextmanager
    async def bulk(self) -> AsyncIterator[Driver]:
        """Begin a block that is done as a whole or not at all."""
        below = await self.below()
        if below is not self:
            async with below.bulk() as it:
                yield it
        else:
            _refuse_autocommit(self.conn.connection.dbapi_connection)
            with self.conn.begin_nested():
                yield self


class AsyncSqlalchemy(Driver):
    """The same, awaited."""

    is_async = True

    def __init__(self, conn: AsyncConnection, schema: SchemaName) -> None:
        _check(conn.dialect)
        self.conn, self.schema = conn, schema

    async def fetch_row(self, statement: Statement) -> Row | None:
        """Execute a statement, return its first row."""
        sql, values = statement.with_colons(self.schema)
        return _row((await self.conn.execute(_text(sql), values, execution_options=AT_ONCE)).first())

    async def below(self) -> Driver:
        """Return the driver of the connection of psycopg or asyncpg below."""
        await self.fetch_row(JOIN)
        return find_driver((await self.conn.get_raw_connection()).driver_connection, self.schema) or self

    @asynccontextmanager
    async def bulk(self) -> AsyncIterator[Driver]:
        """Begin a block that is done as a whole or not at all."""
        below = await self.below()
        if below is not self:
            async with below.bulk() as it:
                yield it
        else:
            async with self.conn.begin_nested():
                yield self


class AsyncSqlalchemySession(Driver):
    """The connection of an async session, which is available only after an await."""

    is_async = True

    def __init__(self, session: AsyncSession, schema: SchemaName) -> None:
        self.session, self.schema = session, schema

    async def fetch_row(self, statement: Statement) -> Row | None:
        """Execute a statement, return its first row."""
        return await AsyncSqlalchemy(await self.session.connection(), self.schema).fetch_row(statement)

    async def below(self) -> Driver:
        """Return the driver of the connection of psycopg or asyncpg below."""
        return await AsyncSqlalchemy(await self.session.connection(), self.schema).below()

    @asynccontextmanager
    async def bulk(self) -> AsyncIterator[Driver]:
        """Begin a block that is done as a whole or not at all."""
        async with AsyncSqlalchemy(await self.session.connection(), self.schema).bulk() as it:
            yield it


def sqlalchemy_session(session: Session, schema: SchemaName) -> Driver:
    """Return the driver of a session's connection."""
    return Sqlalchemy(session.connection(), schema)


def _check(dialect: Dialect) -> None:
    if dialect.name != "postgresql":
        raise TypeError(f"publish needs a connection to PostgreSQL, and this one of SQLAlchemy leads to {dialect.name}")


def _refuse_autocommit(dbapi_connection: Any) -> None:
    if getattr(dbapi_connection, "autocommit", False):
        raise TypeError(
            "publish_many needs a transaction on this driver, and the connection is in AUTOCOMMIT: "
            "begin one, or use psycopg"
        )


def _row(found: Any) -> Row | None:
    return None if found is None else tuple(found)


@lru_cache(maxsize=512)
def _text(sql: str) -> TextClause:
    return text(sql)
