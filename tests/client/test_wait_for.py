"""wait_for: a publisher waits for the end of its message, in threads and in coroutines.

Through a pooler: daemon/outage/test_pooler.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgrouse import MessageNotFound, MessageResult, publish, wait_for
from pgrouse.client.waiting import message_result
from pgrouse.client.waiting import wait_for as waiting
from tests.daemon.proxy import Proxy
from tests.server.postgres import Database
from tests.sql.queue import Queue

pytestmark = pytest.mark.usefixtures("only_notifications")

LONG = timedelta(minutes=1)
# Long enough for every machine, and far shorter than the interval of polls.
NOTIFIED_S = 30.0
WAITERS = "SELECT count(*) FROM messages.waiter"
LOOKS_THAT_WAIT = """
    SELECT count(*) FROM pg_locks AS l WHERE NOT l.granted AND l.relation = 'messages.expected_result'::regclass
"""
SESSIONS = """
    FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.query LIKE '%%messages.wait_for_many(%%'
    AND a.state = 'idle' AND a.pid <> pg_backend_pid()
"""


def complete(queue: Queue, output: str = '{"n": 1}') -> None:
    queue.settle("complete", queue.claim(), [output])


def complete_without_notification(queue: Queue, eventually: Callable[..., Any]) -> None:
    """End the message once a session waits for it, without a notification.

    There is none without the row of the waiter.
    """
    eventually(lambda: queue.value(WAITERS) == 1)
    with queue.conn.transaction():
        queue.conn.execute("DELETE FROM messages.waiter")
        complete(queue)


async def wait_in_a_loop(dsn: str, message_id: int, at_most: timedelta | None) -> MessageResult:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        return await wait_for(conn, message_id, at_most)


def wait_on_a_connection(dsn: str, message_id: int, timeout: timedelta | None) -> MessageResult:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return wait_for(conn, message_id, timeout)


WAYS: dict[str, Callable[[str, int, timedelta | None], MessageResult]] = {
    "dsn": wait_for,
    "connection": wait_on_a_connection,
    "async connection": lambda *arguments: asyncio.run(wait_in_a_loop(*arguments)),
}
each_way = pytest.mark.parametrize("wait", WAYS.values(), ids=WAYS)


@each_way
def test_the_end_is_returned_as_soon_as_the_message_ends(
    queue: Queue, database: Database, threads: ThreadPoolExecutor, eventually: Callable[..., Any], wait: Any
) -> None:
    published = queue.publish()
    waiter = threads.submit(wait, database.dsn, published, LONG)
    eventually(lambda: queue.value(WAITERS) == 1)

    complete(queue)
    ending = waiter.result(timeout=NOTIFIED_S)

    assert ending == MessageResult(published, "success", {"n": 1}, None, 1, queue.archived(published).archived_at)
    assert ending.succeeded


@each_way
def test_an_ended_message_is_returned_at_once(queue: Queue, database: Database, wait: Any) -> None:
    published = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])

    ending = wait(database.dsn, published, timedelta(0))

    assert (ending.result, ending.error, ending.output, ending.succeeded) == ("failed", "boom", None, False)


@each_way
def test_the_timeout_passes_and_the_message_continues(queue: Queue, database: Database, wait: Any) -> None:
    published = queue.publish()

    with pytest.raises(TimeoutError, match=rf"message {published} had not ended after 0:00:00.2"):
        wait(database.dsn, published, timedelta(seconds=0.2))

    assert queue.message(published).claim_id is None


@each_way
def test_an_unknown_message_is_an_error(database: Database, wait: Any) -> None:
    with pytest.raises(MessageNotFound, match="there is no message 4711"):
        wait(database.dsn, 4711, LONG)


def test_the_ends_of_other_messages_cause_no_query(
    queue: Queue,
    database: Database,
    threads: ThreadPoolExecutor,
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[bytes] = []
    run = waiting.run
    monkeypatch.setattr(waiting, "run", lambda conn, call: (made.append(call.statement), run(conn, call))[1])
    published = queue.publish()
    waiter = threads.submit(wait_for, database.dsn, published, LONG)
    eventually(lambda: queue.value(WAITERS) == 1)

    for other in range(1, 6):
        queue.conn.execute("SELECT pg_notify('settled', %s)", [str(published + other)])
    complete(queue)
    waiter.result(timeout=NOTIFIED_S)

    assert sum(b"messages.wait_for_many(" in statement for statement in made) == 2


@pytest.mark.parametrize(
    ("wait", "when"),
    [
        # Otherwise the caller connects.
        pytest.param(wait_for, "before it connects", id="dsn-before it connects"),
        *(pytest.param(way, "while it listens", id=f"{name}-while it listens") for name, way in WAYS.items()),
    ],
)
def test_the_timeout_passes_though_the_server_does_not_answer(
    queue: Queue,
    database: Database,
    threads: ThreadPoolExecutor,
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    wait: Any,
    when: str,
) -> None:
    monkeypatch.setattr(message_result, "LAST_LOOK_S", 0.2)
    published = queue.publish()
    proxy = Proxy(database.dsn)
    try:
        if when == "before it connects":
            proxy.stall()
        waiter = threads.submit(wait, proxy.dsn, published, timedelta(seconds=3))
        if when == "while it listens":
            eventually(lambda: queue.value(WAITERS) == 1)
            proxy.stall()

        with pytest.raises(TimeoutError, match=f"message {published} had not ended after 0:00:03"):
            waiter.result(timeout=NOTIFIED_S)
    finally:
        proxy.close()


def test_many_callers_wait_for_one_message_and_one_caller_for_each_of_many(
    queue: Queue, database: Database, threads: ThreadPoolExecutor, eventually: Callable[..., Any]
) -> None:
    published = queue.publish_many(5)
    waiters = [threads.submit(wait_for, database.dsn, each, LONG) for each in published * 2]
    eventually(lambda: queue.value("SELECT count(*)" + SESSIONS) == 10)

    claimed = queue.claim()
    for each in claimed:
        queue.settle("complete", [each], [str(each.id)])

    assert [waiter.result(timeout=NOTIFIED_S).output for waiter in waiters] == published * 2
    assert queue.value(WAITERS) == 0


def test_a_success_that_is_not_archived_is_reported_to_waiters(
    queue: Queue, database: Database, threads: ThreadPoolExecutor, eventually: Callable[..., Any]
) -> None:
    queue.policy(archive_success="none")
    published = queue.publish()
    waiter = threads.submit(wait_for, database.dsn, published, LONG)
    eventually(lambda: queue.value(WAITERS) == 1)

    complete(queue)

    assert waiter.result(timeout=NOTIFIED_S) == MessageResult(published, "success")


def test_a_lost_notification_costs_one_poll_at_most(
    queue: Queue,
    database: Database,
    threads: ThreadPoolExecutor,
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "CHECK_EVERY_S", 0.3)
    published = queue.publish()
    waiter = threads.submit(wait_for, database.dsn, published, LONG)
    eventually(lambda: queue.value(WAITERS) == 1)

    complete_without_notification(queue, eventually)

    assert waiter.result(timeout=NOTIFIED_S).succeeded


def test_a_broken_connection_is_an_error(
    queue: Queue, database: Database, threads: ThreadPoolExecutor, eventually: Callable[..., Any]
) -> None:
    published = queue.publish()
    waiter = threads.submit(wait_for, database.dsn, published, LONG)
    eventually(lambda: queue.value(WAITERS) == 1)

    eventually(lambda: queue.rows("SELECT pg_terminate_backend(a.pid)" + SESSIONS))

    with pytest.raises(psycopg.OperationalError):
        waiter.result(timeout=NOTIFIED_S)


def test_the_connection_is_unchanged_afterwards(queue: Queue, database: Database) -> None:
    conn = database.connect()
    published = publish(conn, "t", 1)
    complete(queue)

    wait_for(conn, published, LONG)

    assert conn.execute("SELECT pg_listening_channels()").fetchall() == []


def test_a_cancelled_wait_leaves_the_connection_usable(queue: Queue, database: Database) -> None:
    async def cancel_and_go_on() -> Any:
        async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as conn:
            published = await publish(conn, "t", 1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await wait_for(conn, published)
            return await (await conn.execute("SELECT count(*) FROM pg_listening_channels()")).fetchone()

    assert asyncio.run(cancel_and_go_on()) == (0,)


def test_a_wait_in_a_transaction_that_has_written_is_refused(database: Database) -> None:
    conn = database.connect(autocommit=False)
    published = publish(conn, "t", 1)

    with pytest.raises(ValueError, match="the transaction of this connection has written something"):
        wait_for(conn, published)


def test_a_wait_above_read_committed_is_refused(database: Database) -> None:
    conn = database.connect(autocommit=False)
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    with pytest.raises(ValueError, match="is REPEATABLE READ, so that it would never see the end"):
        wait_for(conn, 1)


@each_way
def test_a_look_of_a_session_above_read_committed_that_meets_the_end_is_repeated(
    queue: Queue, database: Database, threads: ThreadPoolExecutor, eventually: Callable[..., Any], wait: Any
) -> None:
    queue.conn.execute("CREATE ROLE strict_shop LOGIN IN ROLE messages_publisher")
    queue.conn.execute("ALTER ROLE strict_shop SET default_transaction_isolation = 'repeatable read'")
    shop = database.server.dsn(database.name, "strict_shop")
    try:
        with psycopg.connect(shop, autocommit=True) as conn:
            published = publish(conn, "t", 1, expect_result=True)
        with database.connect().transaction() as held:
            # The look has its snapshot, and waits before it locks the message.
            held.connection.execute("LOCK messages.expected_result IN ACCESS EXCLUSIVE MODE")
            waiter = threads.submit(wait, shop, published, LONG)
            eventually(lambda: queue.value(LOOKS_THAT_WAIT) == 1)
            complete(queue)

        assert waiter.result(timeout=NOTIFIED_S).succeeded
    finally:
        queue.conn.execute("DROP OWNED BY strict_shop; DROP ROLE strict_shop")


def test_a_blocking_wait_on_an_event_loop_is_refused(database: Database) -> None:
    async def block(where: Any) -> None:
        with pytest.raises(RuntimeError, match=r"wait_for would block the event loop .*: use an async connection, or"):
            wait_for(where, 1)

    asyncio.run(block(database.dsn))
    asyncio.run(block(database.connect()))


@pytest.mark.parametrize(
    ("timeout", "error", "says"),
    [
        ("soon", ValueError, "timeout is 'soon': give a timedelta, a number of seconds, or a text like"),
        (timedelta(seconds=-1), ValueError, "timeout is -1 s: give a timedelta, a number of seconds, or a text like"),
    ],
)
def test_an_invalid_timeout_is_refused(database: Database, timeout: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        wait_for(database.dsn, 1, timeout)


def test_an_invalid_connection_is_refused() -> None:
    with pytest.raises(TypeError, match="not a Thread"):
        wait_for(threading.Thread(), 1)  # type: ignore[call-overload]
