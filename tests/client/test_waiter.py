"""Waiter: one connection serves any number of waits, of threads and of coroutines."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pgrouse import MessageNotFound, MessageResult, ResultForbidden, Waiter, publish, wait_for
from pgrouse.client.waiting import message_result, waiting
from tests.daemon.proxy import Proxy
from tests.server.postgres import Database
from tests.sql.queue import Queue

pytestmark = pytest.mark.usefixtures("only_notifications")

LONG_S = 60.0
# Long enough for every machine, and far shorter than the interval of polls.
NOTIFIED_S = 30.0
WAITERS = "SELECT count(*) FROM messages.waiter"
LISTENERS = """
    SELECT a.pid FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.application_name <> 'emptied'
"""


@pytest.fixture
def waiter(database: Database) -> Iterator[Waiter]:
    with Waiter(database.dsn) as waiter:
        yield waiter


def complete(queue: Queue, limit: int = 100) -> None:
    claimed = queue.claim(limit=limit)
    queue.settle("complete", claimed, [str(each.id) for each in claimed])


def test_a_thousand_coroutines_wait_by_one_connection_and_each_gets_its_result(
    queue: Queue, database: Database, eventually: Callable[..., Any]
) -> None:
    published = queue.publish_many(1000)

    async def wait_for_all() -> tuple[list[MessageResult], int]:
        async with Waiter(database.dsn) as waiter:
            waits = [asyncio.create_task(waiter.ended(each, LONG_S)) for each in published]
            await asyncio.to_thread(eventually, lambda: queue.value(WAITERS) == 1000)
            sessions = len(queue.rows(LISTENERS))
            for _ in range(20):
                await asyncio.to_thread(complete, queue, 50)
            return await asyncio.wait_for(asyncio.gather(*waits), NOTIFIED_S), sessions

    ended, sessions = asyncio.run(wait_for_all())

    assert sessions == 1
    assert [each.output for each in ended] == published
    assert queue.value(WAITERS) == 0


def test_threads_and_event_loops_share_it(
    queue: Queue, waiter: Waiter, threads: ThreadPoolExecutor, eventually: Callable[..., Any]
) -> None:
    one, two = queue.publish_many(2)
    waits = [threads.submit(waiter.wait_for, each, LONG_S) for each in (one, two, one)]
    waits += [threads.submit(asyncio.run, waiter.ended(each, LONG_S)) for each in (one, two)]
    eventually(lambda: queue.value(WAITERS) == 2)

    complete(queue)

    assert [wait.result(NOTIFIED_S).output for wait in waits] == [one, two, one, one, two]


def test_what_ended_before_is_returned_at_once_and_what_is_unknown_is_an_error(queue: Queue, waiter: Waiter) -> None:
    published = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])

    ended = waiter.wait_for(published, 0)

    assert (ended.result, ended.error, ended.succeeded) == ("failed", "boom", False)
    with pytest.raises(MessageNotFound, match="there is no message 4711"):
        waiter.wait_for(4711)


def test_each_wait_has_its_own_timeout(
    queue: Queue, waiter: Waiter, threads: ThreadPoolExecutor, eventually: Callable[..., Any]
) -> None:
    published = queue.publish()
    longer = threads.submit(waiter.wait_for, published, LONG_S)

    for _ in range(3):
        with pytest.raises(TimeoutError, match=rf"message {published} had not ended after 0:00:00.2"):
            waiter.wait_for(published, 0.2)

    complete(queue)
    assert longer.result(NOTIFIED_S).succeeded


def test_a_cancelled_wait_ends_and_the_others_go_on(queue: Queue, database: Database) -> None:
    published = queue.publish()

    async def cancel_one() -> MessageResult:
        async with Waiter(database.dsn) as waiter:
            stays = asyncio.create_task(waiter.ended(published, LONG_S))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await waiter.ended(published)
            complete(queue)
            return await asyncio.wait_for(stays, NOTIFIED_S)

    assert asyncio.run(cancel_one()).succeeded


def test_waits_go_on_when_the_connection_breaks(
    queue: Queue, waiter: Waiter, threads: ThreadPoolExecutor, eventually: Callable[..., Any]
) -> None:
    before, after = queue.publish("a"), queue.publish("b")
    waits = [threads.submit(waiter.wait_for, each, LONG_S) for each in (before, after)]
    eventually(lambda: queue.value(WAITERS) == 2)

    queue.rows(f"SELECT pg_terminate_backend(l.pid) FROM ({LISTENERS}) AS l")
    queue.settle("complete", queue.claim("a"))
    first = waits[0].result(NOTIFIED_S)
    queue.settle("complete", queue.claim("b"))

    assert [first.result, waits[1].result(NOTIFIED_S).result] == ["success", "success"]


def test_a_lost_notification_costs_one_check(
    queue: Queue,
    database: Database,
    threads: ThreadPoolExecutor,
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "CHECK_EVERY_S", 0.3)
    published = queue.publish()
    with Waiter(database.dsn) as waiter:
        wait = threads.submit(waiter.wait_for, published, LONG_S)
        eventually(lambda: queue.value(WAITERS) == 1)

        with queue.conn.transaction():
            queue.conn.execute("DELETE FROM messages.waiter")
            complete(queue)

        assert wait.result(NOTIFIED_S).succeeded


def test_a_message_that_a_long_transaction_is_ending_delays_no_other_wait(
    queue: Queue, database: Database, waiter: Waiter, threads: ThreadPoolExecutor, eventually: Callable[..., Any]
) -> None:
    ends, other = queue.publish("ends"), queue.publish("other")
    ending = Queue(database.connect())
    with ending.conn.transaction():
        ending.settle("complete", ending.claim("ends"))
        waits = [threads.submit(waiter.wait_for, each, LONG_S) for each in (ends, other)]
        eventually(lambda: queue.value(WAITERS) == 1)

        queue.settle("complete", queue.claim("other"))

        assert waits[1].result(NOTIFIED_S).succeeded
        assert not waits[0].done()
    assert waits[0].result(NOTIFIED_S).succeeded


def test_closing_it_ends_its_waits(
    queue: Queue, database: Database, threads: ThreadPoolExecutor, eventually: Callable[..., Any]
) -> None:
    published = queue.publish()
    waiter = Waiter(database.dsn)
    with waiter:
        wait = threads.submit(waiter.wait_for, published)
        eventually(lambda: queue.value(WAITERS) == 1)

    with pytest.raises(RuntimeError, match=f"was closed before message {published} ended"):
        wait.result(NOTIFIED_S)
    with pytest.raises(RuntimeError, match="this Waiter is not open"):
        waiter.wait_for(published)
    eventually(lambda: queue.rows(LISTENERS) == [])


def test_closing_it_does_not_wait_for_a_server_that_does_not_answer(threads: ThreadPoolExecutor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        waiter = Waiter(f"host=127.0.0.1 port={silent.getsockname()[1]} sslmode=disable gssencmode=disable")
        opening = threads.submit(waiter.open)
        accepted, _ = silent.accept()

        waiter.close()

        with accepted, pytest.raises(RuntimeError, match="was closed"):
            opening.result(NOTIFIED_S)


def test_each_wait_ends_at_its_timeout_though_the_server_does_not_answer(
    queue: Queue, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_result, "LAST_LOOK_S", 0.2)
    published = queue.publish()
    proxy = Proxy(database.dsn)
    try:
        with Waiter(proxy.dsn) as waiter:
            proxy.stall()

            for wait in (lambda: waiter.wait_for(published, 0.2), lambda: asyncio.run(waiter.ended(published, 0.2))):
                with pytest.raises(TimeoutError, match=f"message {published} had not ended after 0:00:00.2"):
                    wait()
    finally:
        proxy.close()


def test_it_does_not_block_an_event_loop(waiter: Waiter) -> None:
    async def block() -> None:
        with pytest.raises(
            RuntimeError, match=r"Waiter.wait_for would block the event loop .*: use await Waiter.ended"
        ):
            waiter.wait_for(1)
        with pytest.raises(RuntimeError, match="use async with Waiter"), waiter:
            pass

    asyncio.run(block())


def test_a_database_that_is_not_there_is_an_error_at_once(database: Database) -> None:
    with pytest.raises(psycopg.OperationalError), Waiter(database.server.dsn("none")):
        pass


def test_a_publisher_waits_for_what_it_published_for_that_and_for_nothing_else(
    queue: Queue, database: Database, threads: ThreadPoolExecutor, eventually: Callable[..., Any]
) -> None:
    queue.conn.execute("CREATE ROLE waiting_shop LOGIN IN ROLE messages_publisher")
    shop = database.server.dsn(database.name, "waiting_shop")
    try:
        with psycopg.connect(shop, autocommit=True) as conn, Waiter(shop) as waiter:
            own = publish(conn, "t", 1, expect_result=True)
            others = [queue.publish(), publish(conn, "t", 1)]
            waits = [threads.submit(waiter.wait_for, own, LONG_S), threads.submit(wait_for, shop, own, LONG_S)]
            eventually(lambda: queue.value(WAITERS) == 1)
            complete(queue)

            assert [wait.result(NOTIFIED_S).output for wait in waits] == [own, own]
            for each in (*others, 4711):
                with pytest.raises(ResultForbidden, match=f"this role may not know how message {each} ended"):
                    waiter.wait_for(each)
                with pytest.raises(ResultForbidden):
                    wait_for(conn, each)
    finally:
        queue.conn.execute("DROP OWNED BY waiting_shop; DROP ROLE waiting_shop")


def test_a_role_without_any_right_gets_the_servers_error(queue: Queue, database: Database) -> None:
    queue.conn.execute("CREATE ROLE waiting_none LOGIN")
    try:
        with (
            Waiter(database.server.dsn(database.name, "waiting_none")) as waiter,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            waiter.wait_for(1)
    finally:
        queue.conn.execute("DROP ROLE waiting_none")
