"""What `publish` of a topic in code returns: an id, and a way to wait for the result."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import psycopg
import psycopg_pool
import pytest
import structlog
from pydantic import BaseModel

from pgrouse import (
    AsyncClient,
    AsyncContext,
    Cipher,
    Client,
    Context,
    InvalidResult,
    MessageHandle,
    MessageNotFound,
    MessageUnsuccessful,
    Published,
    PublishRejected,
    ResultForbidden,
    topic,
)
from pgrouse.crypto.envelope import ContentKind
from pgrouse.testing import drain
from tests.server.postgres import Database
from tests.sql.queue import Queue

LONG_S = 60


class Order(BaseModel):
    id: int


class Receipt(BaseModel):
    number: int


@topic("receipt.send")
def send_receipt(order: Order) -> Receipt:
    return Receipt(number=order.id)


@topic("receipt.large")
def large(order: Order) -> str:
    return "x" * 1_100_000


def test_it_is_the_id_that_publish_returns_and_copies_and_pickles_as_that(db: psycopg.Connection[Any]) -> None:
    handle = send_receipt.publish(db, Order(id=7))

    assert (handle > 0, handle.outcome, isinstance(handle, Published)) == (True, "inserted", True)
    for again in (copy(handle), pickle.loads(pickle.dumps(handle))):
        assert (type(again), again, again.outcome) == (Published, handle, "inserted")


def test_an_ended_message_has_its_result_at_once_and_one_that_waits_raises_a_timeout(
    db: psycopg.Connection[Any],
) -> None:
    handle = send_receipt.publish(db, Order(id=7))
    with pytest.raises(TimeoutError, match=rf"message {handle:d} had not ended after 0:00:00.01"):
        handle.result(0.01)

    drain(db, [send_receipt])

    assert handle.result() == Receipt(number=7)


def test_a_cancelled_and_an_expired_message_raise_how_they_ended(db: psycopg.Connection[Any], queue: Queue) -> None:
    cancelled, expired = send_receipt.publish(db, Order(id=1)), send_receipt.publish(db, Order(id=2), ttl="1s")
    client = Client(db)
    client.cancel([cancelled])
    queue.later("2 seconds")
    client.tick("hand")

    for handle, result in ((cancelled, "cancelled"), (expired, "expired")):
        with pytest.raises(MessageUnsuccessful, match=rf"message {handle:d} ended as {result}") as raised:
            handle.result(LONG_S)
        assert raised.value.ended.result == result
        assert pickle.loads(pickle.dumps(raised.value)).ended == raised.value.ended


def test_an_output_that_was_dropped_or_is_not_kept_says_so(
    db: psycopg.Connection[Any], database: Database, queue: Queue, eventually: Callable[..., Any]
) -> None:
    dropped = large.publish(db, Order(id=1))
    drain(db, [large])

    with pytest.raises(
        InvalidResult, match=r"has no output: large \(.*test_results.py:\d+\) returned None, or a value"
    ):
        dropped.result(LONG_S)

    queue.policy("receipt.send", archive_success="none")
    handle = send_receipt.publish(db, Order(id=1))
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(handle.result, LONG_S, where=database.dsn)
        eventually(lambda: queue.value("SELECT count(*) FROM messages.waiter") == 1)
        queue.settle("complete", queue.claim("receipt.send"), ['{"number": 1}'])
        with pytest.raises(
            InvalidResult, match="succeeded, and nothing of it is kept: its topic needs archive_success"
        ):
            waiting.result()


def test_a_message_that_a_full_topic_dropped_has_no_result(db: psycopg.Connection[Any], queue: Queue) -> None:
    queue.policy("receipt.send", max_depth=1, on_full="drop")
    send_receipt.publish(db, Order(id=1))

    dropped = send_receipt.publish(db, Order(id=2))

    assert (dropped, dropped.outcome) == (0, "dropped")
    with pytest.raises(MessageNotFound, match=r"topic receipt.send was full and dropped it"):
        dropped.result(LONG_S)


def test_the_result_of_an_encrypted_message_is_decrypted(db: psycopg.Connection[Any], queue: Queue) -> None:
    cipher = Cipher({"a": os.urandom(32)}, current="a", topics=["receipt.*"])
    handle = send_receipt.publish(db, Order(id=7), cipher=cipher)
    without_key = send_receipt.publish(db, Order(id=7))
    output = cipher.encrypt_json("receipt.send", '{"number": 7}', ContentKind.OUTPUT)

    queue.settle("complete", queue.claim("receipt.send"), [output, output])

    assert handle.result(LONG_S) == Receipt(number=7)
    with pytest.raises(InvalidResult, match=r"has an encrypted output: give publish\(\) the cipher of the topic"):
        without_key.result(LONG_S)


def test_a_connection_of_a_pool_may_belong_to_others_when_the_result_is_asked_for(database: Database) -> None:
    with psycopg_pool.ConnectionPool(database.dsn, kwargs={"autocommit": True}, min_size=1) as pool:
        with pool.connection() as conn:
            handle = send_receipt.publish(conn, Order(id=7))
            from_a_cursor = send_receipt.publish(conn.cursor(), Order(id=8))
        drain(database.dsn, [send_receipt])

        for each in (handle, from_a_cursor):
            with pytest.raises(ValueError, match=r"a connection of a pool, which others may use by now; give result\("):
                each.result(LONG_S)
        with pool.connection() as conn:
            assert handle.result(LONG_S, where=conn) == Receipt(number=7)


def test_a_handler_publishes_and_does_not_wait_where_it_published(database: Database) -> None:
    found: list[MessageHandle[Any]] = []

    @topic("order.created")
    def created(order: Order, ctx: Context) -> None:
        found.append(send_receipt.publish(ctx, order))

    @topic("order.paid")
    async def paid(order: Order, ctx: AsyncContext) -> None:
        found.append(await send_receipt.publish(ctx, order))

    with Client(database.dsn) as client:
        created.publish(client, Order(id=7))
        paid.publish(client, Order(id=7))
        drain(database.dsn, [created, paid, send_receipt])

        with pytest.raises(ValueError, match="does not know where to wait: a handler published it"):
            found[0].result(LONG_S)
        assert found[0].result(LONG_S, where=client) == Receipt(number=7)

    async def wait() -> Any:
        async with AsyncClient(database.dsn) as client:
            return await found[1].result(LONG_S, where=client)

    assert asyncio.run(wait()) == Receipt(number=7)


def test_a_role_that_may_not_know_the_result_is_told_how(database: Database, db: psycopg.Connection[Any]) -> None:
    db.execute("CREATE ROLE receipt_shop LOGIN IN ROLE messages_publisher")
    try:
        with psycopg.connect(database.server.dsn(database.name, "receipt_shop"), autocommit=True) as conn:
            unknown = send_receipt.publish(conn, Order(id=1))
            expected = send_receipt.publish(conn, Order(id=2), expect_result=True)
            drain(db, [send_receipt])

            with pytest.raises(ResultForbidden, match="publish it with expect_result=True"):
                unknown.result(LONG_S)
            assert expected.result(LONG_S) == Receipt(number=2)
    finally:
        db.execute("DROP OWNED BY receipt_shop; DROP ROLE receipt_shop")


def test_a_wait_of_the_other_kind_is_refused(database: Database, db: psycopg.Connection[Any]) -> None:
    handle = send_receipt.publish(db, Order(id=7))

    async def wait() -> None:
        async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as conn:
            with pytest.raises(TypeError, match=r"was published without an await: result.* must not be async either"):
                handle.result(LONG_S, where=conn)
            awaited = await send_receipt.publish(conn, Order(id=8))
            with pytest.raises(RuntimeError, match="wait_for would block the event loop"):
                await awaited.result(LONG_S, where=database.dsn)
            with pytest.raises(RuntimeError, match="wait_for would block the event loop"):
                handle.result(LONG_S)

    asyncio.run(wait())
    with pytest.raises(TypeError, match="wait_for needs a connection string"):
        handle.result(LONG_S, where=7)  # type: ignore[call-overload]


@pytest.fixture
def unconfigured_log() -> Iterator[None]:
    """Log as in an application that configures no structlog, whatever other tests of this process did."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.reset_defaults()
    yield
    if before is not None:
        structlog.configure(**before)


@pytest.mark.usefixtures("unconfigured_log")
def test_a_publish_that_is_not_awaited_is_reported_once(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def forget() -> None:
        async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as conn:
            send_receipt.publish(conn, Order(id=7))
            closed = send_receipt.publish(conn, Order(id=7))
            closed.close()
        async with AsyncClient(database.dsn) as client:
            send_receipt.publish(client, Order(id=7))

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(forget())
        gc.collect()

    assert [str(each.message) for each in warned] == []
    assert [each.message for each in caplog.records] == [
        "publish.never_awaited topic=receipt.send: write `await` before it: nothing was published"
    ] * 2


def test_the_errors_of_an_awaited_publish_are_those_of_publish(database: Database, queue: Queue) -> None:
    queue.policy("receipt.send", accept_publishes=False)

    async def publish() -> None:
        async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as conn:
            await asyncio.create_task(send_receipt.publish(conn, Order(id=7)))

    with pytest.raises(PublishRejected):
        asyncio.run(publish())


def test_a_stand_in_for_a_context_may_return_anything() -> None:
    published: list[Any] = []
    blocking = SimpleNamespace(publish=lambda topic, **options: published.append((topic, options)))
    awaited = SimpleNamespace(publish=AsyncMock(return_value=7))

    assert send_receipt.publish(blocking, Order(id=7)) is None  # type: ignore[call-overload]
    assert asyncio.run(send_receipt.publish(awaited, Order(id=7))) == 7  # type: ignore[call-overload]
    assert published == [("receipt.send", {"payload": Order(id=7)})]
