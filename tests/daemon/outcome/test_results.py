"""The result of a message that was published to a topic in code comes back in the type of its handler."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from pgrouse import AsyncClient, Client, InvalidResult, MessageUnsuccessful, Waiter
from tests.daemon.process import HANDLERS, Daemon
from tests.drivers.callers import for_asyncpg, url
from tests.server.postgres import Database

Start = Callable[..., Daemon]
DECLARED: dict[str, Any] = {"handlers": {"import_path": [str(HANDLERS)], "modules": ["receipts"]}}
AT = datetime(2026, 11, 30, 8, tzinfo=UTC)
LONG_S = 60


@pytest.fixture
def receipts(monkeypatch: pytest.MonkeyPatch, start: Start) -> ModuleType:
    """The module with the topics, whose messages a daemon processes."""
    start({}, sections=DECLARED)
    monkeypatch.syspath_prepend(HANDLERS)
    monkeypatch.delitem(sys.modules, "receipts", raising=False)
    return __import__("receipts")


def test_a_blocking_caller_gets_the_result_where_it_published(receipts: Any, database: Database) -> None:
    order, receipt = receipts.Order(id=7, at=AT), receipts.Receipt(7, AT)
    engine = sqlalchemy.create_engine(url(database.dsn, "psycopg"))

    with psycopg.connect(database.dsn, autocommit=True) as conn, Client(database.dsn) as client:
        assert receipts.send_receipt.publish(conn, order).result(LONG_S) == receipt
        assert receipts.send_receipt.publish(conn.cursor(), order).result(LONG_S) == receipt
        assert receipts.send_receipt.publish(client, order).result(timeout="1m") == receipt
        assert receipts.print_receipt.publish(client, order).result(LONG_S) == [receipt]
        assert receipts.list_receipts.publish(client, order).result(LONG_S) == receipt
        many = receipts.send_receipt.publish_many(conn, [order] * 3, returning=True)
        assert [each.result(LONG_S) for each in many] == [receipt] * 3
    with Session(engine) as session:
        handle = receipts.send_receipt.publish(session, order)
        with pytest.raises(ValueError, match="has written something, so that it would never see the end: commit it"):
            handle.result(LONG_S)
        session.commit()
        assert handle.result(LONG_S) == receipt
    engine.dispose()
    with Waiter(database.dsn) as waiter:
        assert handle.result(LONG_S, where=waiter) == receipt
    assert handle.result(LONG_S, where=database.dsn) == receipt


async def from_coroutines(receipts: Any, database: Database) -> list[Any]:
    order = receipts.Order(id=7, at=AT)
    engine = create_async_engine(url(database.dsn, "asyncpg"))
    conn = await psycopg.AsyncConnection.connect(database.dsn, autocommit=True)
    other = await asyncpg.connect(**for_asyncpg(database.dsn))
    found = []
    async with conn, AsyncClient(database.dsn) as client, Waiter(database.dsn) as waiter:
        first = await receipts.send_receipt.publish(conn, order)
        second = await receipts.send_receipt.publish(client, order)
        found += [await first.result(LONG_S), *await asyncio.gather(*[second.result(LONG_S) for _ in range(3)])]
        third = await receipts.print_receipt.publish(other, order)
        found += await third.result(LONG_S)
        async with AsyncSession(engine) as session:
            fourth = await receipts.list_receipts.publish(session, order)
            await session.commit()
            found.append(await fourth.result(LONG_S))
        found.append(await first.result(LONG_S, where=waiter))
        many = await receipts.send_receipt.publish_many(conn, [order], returning=True)
        found.append(await many[0].result(LONG_S, where=client))
    await other.close()
    await engine.dispose()
    return found


def test_a_coroutine_gets_the_result_where_it_published(receipts: Any, database: Database) -> None:
    found = asyncio.run(from_coroutines(receipts, database))

    assert found == [receipts.Receipt(7, AT)] * 8


def test_a_message_without_a_result_raises_how_it_ended_or_why_its_output_does_not_fit(
    receipts: Any, database: Database
) -> None:
    with Client(database.dsn) as client:
        rejected = receipts.send_receipt.publish(client, receipts.Order(id=0, at=AT))
        with pytest.raises(
            MessageUnsuccessful, match=rf"^message {rejected:d} ended as rejected: no number$"
        ) as raised:
            rejected.result(LONG_S)
        assert (raised.value.ended.id, raised.value.ended.result) == (rejected, "rejected")

        wrong = receipts.count_receipts.publish(client, receipts.Order(id=7, at=AT))
        with pytest.raises(InvalidResult, match=r"receipt.count has an output that is no int") as unfit:
            wrong.result(LONG_S)
        assert "let count_receipts (" in str(unfit.value)
        assert "return what its annotation says, or correct the annotation" in str(unfit.value)
        assert "not a number" not in str(unfit.value)
