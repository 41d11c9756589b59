"""pgrouse.migrate: the schema, installed on the connections that applications have, in their transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
from django.db import transaction
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from pgrouse import migrate
from pgrouse.errors import DatabaseUnreachable
from tests.drivers.callers import django_connection, url
from tests.server.postgres import Database

EXISTS = "SELECT to_regclass('messages.message') IS NOT NULL"
SETTINGS = (
    "SELECT current_setting('lock_timeout'), current_setting('client_min_messages'), "
    "current_setting('search_path'), current_user"
)


def is_installed(database: Database) -> bool:
    return database.connect().execute(EXISTS).fetchone() == (True,)


class Undone(Exception):
    pass


@contextmanager
def of_psycopg(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn) as conn:
        yield conn


@contextmanager
def of_dict_rows(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn, row_factory=dict_row, cursor_factory=psycopg.ClientCursor) as conn:
        yield conn
        assert conn.row_factory is dict_row


@contextmanager
def of_sqlalchemy(dsn: str) -> Iterator[Any]:
    with sqlalchemy.create_engine(url(dsn, "psycopg"), poolclass=NullPool).begin() as conn:
        yield conn


@contextmanager
def of_session(dsn: str) -> Iterator[Any]:
    with Session(sqlalchemy.create_engine(url(dsn, "psycopg"), poolclass=NullPool)) as session, session.begin():
        yield session


@contextmanager
def of_django(dsn: str) -> Iterator[Any]:
    connection = django_connection(dsn, "migrate")
    try:
        with transaction.atomic(using=connection.alias):
            yield connection
    finally:
        connection.close()


@pytest.mark.parametrize("caller", [of_psycopg, of_dict_rows, of_sqlalchemy, of_session, of_django])
class TestTransaction:
    """Connections that have begun a transaction, or begin one with the first statement."""

    def test_it_is_installed_when_the_caller_commits(
        self, empty_database: Database, caller: Callable[[str], Any]
    ) -> None:
        with caller(empty_database.dsn) as conn:
            assert migrate(conn)
            assert migrate(conn) == []
            assert not is_installed(empty_database)

        assert is_installed(empty_database)

    def test_it_is_gone_when_the_caller_rolls_back(
        self, empty_database: Database, caller: Callable[[str], Any]
    ) -> None:
        def install() -> None:
            with caller(empty_database.dsn) as conn:
                migrate(conn)
                raise Undone

        with pytest.raises(Undone):
            install()
        assert not is_installed(empty_database)


@pytest.mark.long
def test_a_connection_string_is_committed(empty_database: Database) -> None:
    assert migrate(empty_database.dsn)
    assert is_installed(empty_database)


def test_autocommit_is_committed(empty_database: Database) -> None:
    assert migrate(empty_database.connect())
    assert is_installed(empty_database)


def test_django_outside_of_a_block_is_committed(empty_database: Database) -> None:
    connection = django_connection(empty_database.dsn, "migrate alone")
    migrate(connection)
    connection.close()
    assert is_installed(empty_database)


def test_settings_of_the_transaction_stay(empty_database: Database) -> None:
    with psycopg.connect(empty_database.dsn) as conn:
        conn.execute("SET LOCAL lock_timeout = '7s'")
        before = conn.execute(SETTINGS).fetchone()
        migrate(conn)
        assert conn.execute(SETTINGS).fetchone() == before


def test_a_role_that_is_no_superuser_joins_its_transaction(empty_database: Database) -> None:
    admin = empty_database.connect()
    admin.execute("CREATE ROLE migrates_itself LOGIN")
    admin.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO migrates_itself").format(sql.Identifier(admin.info.dbname)))
    with psycopg.connect(make_conninfo(empty_database.dsn, user="migrates_itself")) as conn:
        conn.execute("SET LOCAL statement_timeout = '70s'")
        migrate(conn)
        assert conn.execute("SHOW statement_timeout").fetchone() == ("70s",)
    assert is_installed(empty_database)


def test_without_a_server_says_so() -> None:
    with pytest.raises(DatabaseUnreachable, match="no connection"):
        migrate("host=/nowhere dbname=none")


def test_other_drivers_are_refused_with_the_fix(empty_database: Database) -> None:
    async def on_async_connection() -> None:
        async with await psycopg.AsyncConnection.connect(empty_database.dsn) as conn:
            migrate(conn)  # type: ignore[arg-type]

    async def on_asyncpg() -> None:
        async with create_async_engine(url(empty_database.dsn, "asyncpg"), poolclass=NullPool).connect() as conn:
            await conn.run_sync(migrate)

    with pytest.raises(TypeError, match="connection string"):
        asyncio.run(on_async_connection())
    with pytest.raises(TypeError, match="connection string"):
        asyncio.run(on_asyncpg())
