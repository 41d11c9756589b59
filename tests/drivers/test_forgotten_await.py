"""A publish on an async connection that is never awaited: nothing is published, and the log has an error."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from structlog.testing import capture_logs

from pgrouse import publish, publish_many
from tests.drivers.callers import url
from tests.server.postgres import Database

COUNT = "SELECT count(*) FROM messages.message"
# The interpreter's own warning, which has no place and no level.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine '_publish:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


async def forget(dsn: str) -> None:
    engine = create_async_engine(url(dsn, "psycopg"))
    async with AsyncSession(engine) as session, session.begin():
        publish(session, "lost.one", {"id": 7})  # type: ignore[unused-coroutine]
        publish_many(session, [])  # type: ignore[unused-coroutine]
    await engine.dispose()


def test_it_is_an_error_in_the_log_of_a_process_that_only_publishes(
    database: Database, db: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("structlog.is_configured", lambda: False)

    asyncio.run(forget(database.dsn))
    gc.collect()

    logged = [(each.name, each.levelno, each.getMessage()) for each in caplog.records if each.name == "pgrouse"]
    assert [each[:2] for each in logged] == [("pgrouse", logging.ERROR)] * 2
    assert logged[0][2] == "publish.never_awaited topic=lost.one: write `await` before it: nothing was published"
    assert db.execute(COUNT).fetchone() == (0,)


def test_with_structlog_it_is_an_event(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structlog.is_configured", lambda: True)

    with capture_logs() as logged:
        asyncio.run(forget(database.dsn))
        gc.collect()

    assert [(each["event"], each["log_level"], each["topic"]) for each in logged] == [
        ("publish.never_awaited", "error", "lost.one"),
        ("publish.never_awaited", "error", None),
    ]


def test_an_awaited_or_closed_publish_logs_nothing(
    database: Database, db: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def remember() -> None:
        async with await psycopg.AsyncConnection.connect(database.dsn) as conn:
            assert await asyncio.create_task(publish(conn, "t", 1)) > 0
            assert await asyncio.wait_for(publish(conn, "t", 2), 60) > 0
            publish(conn, "t", 3).close()
            waiting = asyncio.create_task(publish(conn, "t", 4))
            waiting.cancel()
            assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)

    asyncio.run(remember())
    gc.collect()

    assert [each for each in caplog.records if each.name == "pgrouse"] == []
    assert db.execute(COUNT).fetchone() == (2,)
