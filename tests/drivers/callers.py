"""The connections that callers publish on, each opened as its users do, with the operations that a test needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import django
import django.conf
import psycopg
import psycopg_pool
import sqlalchemy
from django.db import connections, transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from pgrouse import publish, publish_many


@dataclass
class Caller:
    """An open transaction of a caller.

    Attributes:
        conn: the connection for publish.
        wait: awaits the result of publish if it is awaitable.
        execute: runs another statement in the transaction.
    """

    conn: Any
    execute: Callable[[str], Any]
    wait: Callable[[Any], Any] = lambda result: result

    def publish(self, *args: Any, **options: Any) -> Any:
        return self.wait(publish(self.conn, *args, **options))

    def publish_many(self, messages: Any, **options: Any) -> Any:
        return self.wait(publish_many(self.conn, messages, **options))


def url(dsn: str, driver: str) -> sqlalchemy.URL:
    """Return SQLAlchemy's form of a connection string."""
    parts = conninfo_to_dict(dsn)
    return sqlalchemy.URL.create(
        f"postgresql+{driver}",
        str(parts["user"]),
        parts.get("password") and str(parts["password"]),
        str(parts["host"]),
        int(parts["port"] or 0),
        str(parts["dbname"]),
    )


def for_asyncpg(dsn: str) -> dict[str, Any]:
    """Return what asyncpg connects with."""
    parts = conninfo_to_dict(dsn)
    names = {"host": "host", "port": "port", "user": "user", "password": "password", "database": "dbname"}
    return {name: parts[ours] for name, ours in names.items() if ours in parts}


def django_connection(dsn: str, alias: str) -> Any:
    """Return the connection of an alias of this database: Django keeps connections by their aliases, without end."""
    if not django.conf.settings.configured:
        django.conf.settings.configure(USE_TZ=True)
        django.setup()
    parts = conninfo_to_dict(dsn)
    alias = f"{alias} {parts['dbname']}"
    names = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
    settings = {name: parts[ours] for name, ours in names.items() if ours in parts}
    described = {"default": {}, alias: {"ENGINE": "django.db.backends.postgresql", **settings}}
    connections.databases[alias] = connections.configure_settings(described)[alias]
    return connections[alias]


@contextmanager
def of_psycopg(dsn: str) -> Iterator[Caller]:
    with psycopg.connect(dsn) as conn:
        yield Caller(conn, lambda sql: conn.execute(sql.encode()))


@contextmanager
def of_psycopg_cursor(dsn: str) -> Iterator[Caller]:
    with psycopg.connect(dsn) as conn, conn.cursor() as cursor:
        yield Caller(cursor, lambda sql: cursor.execute(sql.encode()))


@contextmanager
def of_psycopg_pool(dsn: str) -> Iterator[Caller]:
    with psycopg_pool.ConnectionPool(dsn, min_size=1, max_size=1) as pool, pool.connection() as conn:
        yield Caller(conn, lambda sql: conn.execute(sql.encode()))


@contextmanager
def of_sqlalchemy(dsn: str) -> Iterator[Caller]:
    with sqlalchemy.create_engine(url(dsn, "psycopg"), poolclass=NullPool).begin() as conn:
        yield Caller(conn, lambda sql: conn.execute(sqlalchemy.text(sql)))


@contextmanager
def of_session(dsn: str) -> Iterator[Caller]:
    engine = sqlalchemy.create_engine(url(dsn, "psycopg"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield Caller(session, lambda sql: session.execute(sqlalchemy.text(sql)))


@contextmanager
def of_scoped_session(dsn: str) -> Iterator[Caller]:
    engine = sqlalchemy.create_engine(url(dsn, "psycopg"), poolclass=NullPool)
    session = scoped_session(sessionmaker(engine))
    with session.begin():
        yield Caller(session, lambda sql: session.execute(sqlalchemy.text(sql)))
    session.remove()


@contextmanager
def of_django(dsn: str) -> Iterator[Caller]:
    conn = django_connection(dsn, "drivers")
    try:
        with transaction.atomic(using=conn.alias):
            yield Caller(conn, lambda sql: conn.cursor().execute(sql))
    finally:
        conn.close()


def awaited(
    opened: Callable[[str], AbstractAsyncContextManager[tuple[Any, Callable[[str], Any]]]],
) -> Callable[[str], Any]:
    """Make a caller of an async connection, on an event loop of its own."""

    @contextmanager
    def open_(dsn: str) -> Iterator[Caller]:
        with asyncio.Runner() as runner:

            def wait(awaitable: Any) -> Any:
                async def main() -> Any:
                    return await awaitable

                return runner.run(main())

            block = opened(dsn)
            conn, execute = wait(block.__aenter__())
            try:
                yield Caller(conn, lambda sql: wait(execute(sql)), wait)
            except BaseException as error:
                wait(block.__aexit__(type(error), error, error.__traceback__))
                raise
            wait(block.__aexit__(None, None, None))

    return open_


@asynccontextmanager
async def of_async_psycopg(dsn: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        yield conn, lambda sql: conn.execute(sql.encode())


@asynccontextmanager
async def of_asyncpg(dsn: str) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(**for_asyncpg(dsn))
    try:
        async with conn.transaction():
            yield conn, conn.execute
    finally:
        await conn.close()


@asynccontextmanager
async def of_asyncpg_pool(dsn: str) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(**for_asyncpg(dsn), min_size=1, max_size=1) as pool,
        pool.acquire() as conn,
        conn.transaction(),
    ):
        yield conn, conn.execute


def of_async_sqlalchemy(driver: str) -> Callable[[str], Any]:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Any]:
        async with create_async_engine(url(dsn, driver), poolclass=NullPool).begin() as conn:
            yield conn, lambda sql: conn.execute(sqlalchemy.text(sql))

    return opened


def of_async_session(driver: str) -> Callable[[str], Any]:
    @asynccontextmanager
    async def opened(dsn: str) -> AsyncIterator[Any]:
        engine = create_async_engine(url(dsn, driver), poolclass=NullPool)
        async with AsyncSession(engine) as session, session.begin():
            yield session, lambda sql: session.execute(sqlalchemy.text(sql))

    return opened


CALLERS: dict[str, Callable[[str], Any]] = {
    "psycopg": of_psycopg,
    "psycopg cursor": of_psycopg_cursor,
    "psycopg pool": of_psycopg_pool,
    "psycopg async": awaited(of_async_psycopg),
    "asyncpg": awaited(of_asyncpg),
    "asyncpg pool": awaited(of_asyncpg_pool),
    "sqlalchemy": of_sqlalchemy,
    "sqlalchemy session": of_session,
    "sqlalchemy scoped": of_scoped_session,
    "sqlalchemy async psycopg": awaited(of_async_sqlalchemy("psycopg")),
    "sqlalchemy async asyncpg": awaited(of_async_sqlalchemy("asyncpg")),
    "sqlalchemy async session psycopg": awaited(of_async_session("psycopg")),
    "sqlalchemy async session asyncpg": awaited(of_async_session("asyncpg")),
    "django": of_django,
}
# Each way of executing once.
DISTINCT = ("psycopg", "psycopg async", "asyncpg", "sqlalchemy", "sqlalchemy async asyncpg", "django")
