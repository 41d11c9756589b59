"""Whether an idle connection still works: without a round trip, unless the server has said something."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from pgrouse.client.connection.database import check_idle, check_idle_async
from tests.server.deadline import eventually
from tests.server.postgres import Database

LAST_CHANGE = "SELECT a.state_change FROM pg_stat_activity AS a WHERE a.pid = %s"
END = "SELECT pg_terminate_backend(%s, 30000)"


def one(
    db: psycopg.Connection[Any], statement: str, conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
) -> Any:
    (value,) = db.execute(statement.encode(), [conn.info.backend_pid]).fetchone() or (None,)
    return value


def test_a_working_connection_is_not_asked(database: Database, db: psycopg.Connection[Any]) -> None:
    with database.connect() as conn:
        conn.execute("SELECT 1")
        eventually(lambda: one(db, "SELECT a.state = 'idle' FROM pg_stat_activity AS a WHERE a.pid = %s", conn))
        before = one(db, LAST_CHANGE, conn)

        check_idle(conn)

        assert one(db, LAST_CHANGE, conn) == before


def test_a_connection_that_the_server_has_ended_is_refused(database: Database, db: psycopg.Connection[Any]) -> None:
    with database.connect() as conn:
        assert one(db, END, conn)

        with pytest.raises(psycopg.OperationalError):
            check_idle(conn)


def test_an_async_connection_that_the_server_has_ended_is_refused(
    database: Database, db: psycopg.Connection[Any]
) -> None:
    async def check() -> None:
        async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as conn:
            await check_idle_async(conn)
            assert one(db, END, conn)
            with pytest.raises(psycopg.OperationalError):
                await check_idle_async(conn)

    asyncio.run(check())


def test_a_connection_that_was_sent_something_else_is_kept(database: Database, db: psycopg.Connection[Any]) -> None:
    with database.connect() as conn:
        conn.execute("LISTEN news")
        db.execute("NOTIFY news")
        eventually(lambda: one(db, "SELECT a.state = 'idle' FROM pg_stat_activity AS a WHERE a.pid = %s", conn))

        check_idle(conn)

        assert conn.execute("SELECT 1").fetchone() == (1,)
