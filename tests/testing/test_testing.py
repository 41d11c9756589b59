"""pgrouse.testing: users test their handlers and publishers on a real queue, without a daemon and without waiting."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import BaseModel

from pgrouse import (
    AsyncContext,
    Client,
    Context,
    Defer,
    EventTimeout,
    Reject,
    Retry,
    Worker,
    publish,
    publish_many,
)
from pgrouse.errors import ConfigError, InvalidMessage
from pgrouse.publishing.new_message import NewMessage
from pgrouse.testing import (
    Attempt,
    assert_not_published,
    assert_published,
    at,
    clean,
    database,
    drain,
    perform,
    published,
)
from pgrouse.testing.clean import OF_TESTS
from tests.drivers.callers import CALLERS, DISTINCT
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def shared(server: Postgres) -> Iterator[Database]:
    """One database for all tests of this module."""
    with server.new_database(template=server.migrated) as database:
        database.connect().execute("CREATE TABLE points (orders int)")
        yield database


@pytest.fixture
def conn(shared: Database) -> Iterator[Connection]:
    """A transaction that is rolled back at the end."""
    with psycopg.connect(shared.dsn) as conn:
        yield conn
        conn.rollback()


class Order(BaseModel):
    id: int
    total: int = 0


def count_points(order: Order, ctx: Context) -> int:
    if order.total < 0:
        raise Reject("a negative total")
    with ctx.transaction() as conn:
        conn.execute("INSERT INTO points VALUES (%s)", [order.id])
        ctx.output = {"points": order.total // 10}
        ctx.publish("mail.send", {"order": order.id}, headers={"h": 1})
    return 0


def points(conn: Connection) -> list[int]:
    return [row[0] for row in conn.execute("SELECT orders FROM points ORDER BY 1")]


# drain


def test_ready_messages_run_in_the_transaction_of_the_test_and_are_rolled_back_with_it(
    conn: Connection, shared: Database
) -> None:
    order = publish(conn, "orders", {"id": 7, "total": 250})

    attempts = drain(conn, {"orders": count_points})

    assert attempts == [Attempt(order, "orders", 1, "complete", output={"points": 25})]
    assert points(conn) == [7]
    assert published(conn, "mail.send")[0]["payload"] == {"order": 7}
    conn.rollback()
    assert (points(conn), published(conn)) == ([], [])


def test_the_archive_equals_that_of_a_daemon(conn: Connection) -> None:
    good, bad = publish(conn, "orders", {"id": 7, "total": 250}), publish(conn, "orders", {"id": 8, "total": -1})

    drain(conn, {"orders": count_points})

    rows = conn.execute("SELECT id, result, output, error FROM messages.message_archive ORDER BY id").fetchall()
    assert rows == [(good, "success", {"points": 25}, None), (bad, "rejected", None, "a negative total")]


def test_a_waiting_retry_runs_when_time_is_advanced(conn: Connection) -> None:
    conn.execute(
        "INSERT INTO messages.topic (topic, max_attempts, backoff) "
        'VALUES (\'t\', 3, \'{"kind": "constant", "base": 60}\')'
    )

    def work(payload: Any, ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ConnectionError
        return ctx.attempt

    publish(conn, "t")
    first = drain(conn, {"t": work})
    with at(conn, timedelta(minutes=10)):
        second = drain(conn, {"t": work})

    assert [(each.outcome, each.number, each.output) for each in first + second] == [
        ("retry", 1, None),
        ("complete", 2, 2),
    ]


def test_a_retry_waits_for_the_next_call_however_short_its_delay_is(conn: Connection) -> None:
    conn.execute('INSERT INTO messages.topic (topic, backoff) VALUES (\'t\', \'{"kind": "constant", "base": 1e-6}\')')

    def work(payload: str, ctx: Context) -> int:
        if ctx.attempt == 1 and payload == "fails":
            raise ConnectionError
        return ctx.attempt

    first, other = publish(conn, "t", "fails", max_attempts=3), publish(conn, "t", "succeeds")
    attempts = drain(conn, {"t": work}), drain(conn, {"t": work})

    assert [[(each.id, each.outcome, each.number) for each in call] for call in attempts] == [
        [(first, "retry", 1), (other, "complete", 1)],
        [(first, "complete", 2)],
    ]


def test_a_message_that_is_deferred_to_now_is_processed_to_its_end(conn: Connection) -> None:
    def work(payload: Any, ctx: Context) -> int:
        if (ctx.state or 0) < 2:
            raise Defer(state=(ctx.state or 0) + 1)
        return int(ctx.state)

    publish(conn, "t")

    assert [each.outcome for each in drain(conn, {"t": work})] == ["defer", "defer", "complete"]


def test_a_handler_that_publishes_to_itself_is_stopped(conn: Connection) -> None:
    publish(conn, "t")

    with pytest.raises(RuntimeError, match="10 attempts were made and there is more to do, next a message of topic t"):
        drain(conn, {"t": lambda payload, ctx: ctx.publish("t") and None}, limit=10)


def test_an_sql_error_in_a_handlers_transaction_leaves_that_of_the_test_usable(conn: Connection) -> None:
    def work(payload: Any, ctx: Context) -> None:
        with ctx.transaction() as own:
            own.execute("SELECT 1/0")

    publish(conn, "t")
    (attempt,) = drain(conn, {"t": work})

    assert "DivisionByZero" in (attempt.error or "")
    assert conn.execute("SELECT result FROM messages.message_archive").fetchall() == [("failed",)]


def test_an_async_handler_on_a_blocking_connection_runs_without_a_transaction(conn: Connection) -> None:
    async def plain(payload: int) -> int:
        await asyncio.sleep(0)
        return payload

    async def deep(payload: int, ctx: AsyncContext) -> None:
        async with ctx.transaction():
            pass

    publish(conn, "plain", 1)
    publish(conn, "deep", 1)
    good, bad = sorted(drain(conn, {"plain": plain, "deep": deep}), key=lambda each: each.id)

    assert good.output == 1
    assert "an async handler that uses the database needs a psycopg.AsyncConnection" in (bad.error or "")


@pytest.mark.parametrize("on_a_loop", [False, True])
def test_a_connection_string_runs_both_kinds_of_handlers_and_commits(shared: Database, on_a_loop: bool) -> None:
    async def on_the_loop(payload: int, ctx: AsyncContext) -> None:
        async with ctx.transaction() as own:
            await own.execute("INSERT INTO points VALUES (1)")

    def in_a_thread(payload: int, ctx: Context) -> None:
        with ctx.transaction() as own:
            own.execute("INSERT INTO points VALUES (2)")

    handlers = {"a": on_the_loop, "b": in_a_thread}
    with psycopg.connect(shared.dsn, autocommit=True) as conn:
        publish_many(conn, [NewMessage(topic="a", payload=1), NewMessage(topic="b", payload=1)])

        async def main() -> Any:
            return await drain(shared.dsn, handlers)

        attempts = asyncio.run(main()) if on_a_loop else drain(shared.dsn, handlers)

        assert [each.outcome for each in attempts] == ["complete", "complete"], attempts
        assert points(conn) == [1, 2]
        clean(conn)
        conn.execute("TRUNCATE points")
        assert published(conn) == []


CONFIG = """
[topics."batch"]
handler = "testing_shop:add"
batch_size = 10
[topics."first"]
handler = "testing_shop:fail"
ack_policy = "ack_first"
"""


def test_the_handlers_of_a_configuration_run_with_its_settings(conn: Connection, tmp_path: Path) -> None:
    (tmp_path / "testing_shop.py").write_text(
        "def add(payloads: list[int]):\n    return [n + len(payloads) for n in payloads]\ndef fail():\n    raise "
        "ValueError\n"
    )
    (tmp_path / "pgrouse.toml").write_text(f'[handlers]\nimport_path = ["{tmp_path}"]\n{CONFIG}')
    publish_many(conn, [*(NewMessage(topic="batch", payload=n) for n in (1, 2, 3)), NewMessage(topic="first")])

    attempts = drain(conn, tmp_path / "pgrouse.toml")

    assert [each.output for each in attempts if each.topic == "batch"] == [4, 5, 6]
    results = conn.execute("SELECT topic, result FROM messages.message_archive ORDER BY id").fetchall()
    assert results == [("batch", "success")] * 3 + [("first", "success")]


def test_an_invalid_handler_is_refused(conn: Connection) -> None:
    with pytest.raises(ConfigError, match="needs 3 arguments"):
        drain(conn, {"t": lambda a, b, c: None})


# published


@pytest.mark.parametrize("name", DISTINCT)
def test_published_messages_are_found_on_every_kind_of_connection(name: str, shared: Database) -> None:
    class Undo(Exception):
        pass

    with pytest.raises(Undo), CALLERS[name](shared.dsn) as it:  # noqa: PT012 - the block is a transaction
        it.publish("orders", {"id": 7, "lines": [{"sku": "a", "n": 1}]}, key="k", headers={"h": 1}, delay=timedelta(1))
        it.publish("orders", body=b"\x00\xff")
        it.publish("mails")

        first, second = it.wait(published(it.conn, "orders"))
        found = it.wait(assert_published(it.conn, "orders", {"lines": [{"sku": "a"}]}, key="k", is_delayed=True))
        it.wait(assert_published(it.conn, "orders", body=b"\x00\xff", count=1))
        it.wait(assert_not_published(it.conn, "orders", {"id": 8}))
        raise Undo

    assert (first["payload"]["id"], first["headers"], first["is_delayed"]) == (7, {"h": 1}, True)
    assert (second["body"], second["payload"]) == (b"\x00\xff", None)
    assert found == [first]


def test_a_failed_expectation_lists_the_published_messages(conn: Connection) -> None:
    publish(conn, "orders", {"id": 7})

    with pytest.raises(
        AssertionError,
        match=r"at least one message of topic orders, payload \{'id': 8\}; "
        r"0 of these fit:\n  id=\d+, topic='orders', payload=\{'id': 7\}",
    ):
        assert_published(conn, "orders", {"id": 8})
    with pytest.raises(AssertionError, match="nothing of this topic was published; other topics: orders"):
        assert_published(conn, "mails")
    with pytest.raises(AssertionError, match="expected 2 messages of topic orders; 1 of these fit"):
        assert_published(conn, "orders", count=2)
    with pytest.raises(AssertionError, match="expected 0 messages of topic orders"):
        assert_not_published(conn, "orders")


# perform


def test_a_handler_is_called_with_its_annotated_type_and_a_context() -> None:
    def work(order: Order, ctx: Context) -> dict[str, Any]:
        return {
            "id": order.id,
            "attempt": ctx.attempt,
            "topic": ctx.topic,
            "state": ctx.state,
            "key": ctx.key,
            **ctx.headers,
        }

    attempt = perform(work, {"id": 7}, number=2, topic="orders", state=[1], key="k", headers={"h": 1})

    assert attempt.output == {"id": 7, "attempt": 2, "topic": "orders", "state": [1], "key": "k", "h": 1}
    assert attempt.succeeded


def test_outcomes_are_returned_and_exceptions_of_handlers_are_raised() -> None:
    def work(order: Order, ctx: Context) -> None:
        if order.id == 1:
            raise LookupError("no such order")
        ctx.nack(timedelta(seconds=5), reason="later")

    assert perform(work, {"id": "x"}).outcome == "reject"
    assert perform(work, {"id": 2}).after == timedelta(seconds=5)
    with pytest.raises(LookupError, match="no such order"):
        perform(work, {"id": 1})
    with pytest.raises(InvalidMessage):
        perform(work, float("nan"))


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_handler_raises_is_freed_with_the_last_reference_to_it(is_async: bool) -> None:
    held: list[weakref.ref[Any]] = []

    def fail(payload: Any) -> None:
        large = threading.Event()
        held.append(weakref.ref(large))
        raise ValueError(large)

    async def fail_on_a_loop(payload: Any) -> None:
        await asyncio.sleep(0)
        fail(payload)

    gc.disable()
    try:
        with suppress(ValueError):
            perform(fail_on_a_loop if is_async else fail)
        assert held[0]() is None
    finally:
        gc.enable()


def test_each_attempt_has_a_context_of_its_own(conn: Connection) -> None:
    left: ContextVar[str] = ContextVar("left", default="nothing")

    def leave(payload: Any) -> str:
        found = left.get()
        left.set("something")
        return found

    async def leave_on_a_loop(payload: Any) -> str:
        return leave(payload)

    async def on_a_loop() -> list[Attempt]:
        return [await perform(function) for function in (leave, leave_on_a_loop)]

    publish_many(conn, [NewMessage(topic=topic, payload=1) for topic in ("blocking", "async") * 2])
    attempts = [
        *drain(conn, {"blocking": leave, "async": leave_on_a_loop}),
        perform(leave),
        perform(leave_on_a_loop),
        *asyncio.run(on_a_loop()),
    ]

    assert [each.output for each in attempts] == ["nothing"] * 8
    assert left.get() == "nothing"


def test_a_misused_outcome_is_an_error() -> None:
    assert perform(lambda payload: Retry(after=5)).after == timedelta(seconds=5)
    assert perform(lambda payload: Retry(after="5s")).after == timedelta(seconds=5)
    with pytest.raises(ValueError, match="is 'soon': give a timedelta, a number of seconds, or a text"):
        perform(lambda payload: Retry(after="soon"))
    returned = perform(lambda payload: Reject)
    assert (returned.outcome, returned.succeeded) == ("retry", False)
    assert "the handler returned the class Reject" in (returned.error or "")


def test_async_handlers_run_with_or_without_a_running_loop() -> None:
    async def work(payload: int, ctx: AsyncContext) -> int:
        await ctx.heartbeat(5)
        return payload + 1

    async def main() -> Any:
        return [await perform(work, 1), await perform(lambda payload: payload, 2)]

    assert perform(work, 1).output == 2
    assert [each.output for each in asyncio.run(main())] == [2, 2]


def test_a_handler_without_a_connection_gets_an_error_that_names_it(conn: Connection) -> None:
    def work(payload: Any, ctx: Context) -> None:
        ctx.publish("next", payload)

    with pytest.raises(RuntimeError, match=r"perform\(\) got no connection: pass conn=..., or use drain"):
        perform(work, 1)
    perform(work, 1, conn=conn)

    assert_published(conn, "next", 1, count=1)


# at, database, clean


def test_a_frozen_time_ends_with_its_block(conn: Connection) -> None:
    moment = datetime(2050, 1, 1, tzinfo=UTC)
    with at(conn, moment):
        within = conn.execute("SELECT messages.now()").fetchone()
    after = conn.execute("SELECT messages.now() < '2049-01-01'").fetchone()

    assert (within, after) == ((moment,), (True,))
    with pytest.raises(ValueError, match="time zone"):
        at(conn, datetime(2050, 1, 1))  # noqa: DTZ001


def filled(conn: Connection) -> dict[str, int]:
    """Return how many rows each table has that has some."""
    tables = conn.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'messages'::regnamespace AND relkind IN ('r', 'p')"
    )
    rows = {name: conn.execute(f'SELECT count(*) FROM messages."{name}"'.encode()).fetchone() for (name,) in tables}
    return {name: found[0] for name, found in rows.items() if found and found[0]}


def test_a_database_is_created_emptied_and_dropped(shared: Database) -> None:
    with database(shared.dsn) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        fresh = filled(conn)
        conn.execute("INSERT INTO messages.topic (topic, max_depth, key_ttl) VALUES ('t', 5, '1 h')")
        publish(conn, "t", key="k")
        drain(conn, {"t": lambda payload: None})
        clean(conn)
        assert published(conn) == []
        assert filled(conn) == fresh
        assert publish(conn, "t", key="k").outcome == "inserted"

    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn)


def test_only_a_database_of_tests_is_emptied(shared: Database) -> None:
    elsewhere = make_conninfo(shared.dsn, dbname="postgres")
    with psycopg.connect(elsewhere) as conn:
        with pytest.raises(
            RuntimeError, match="database postgres is none of tests by its name: connect to one of testing"
        ):
            clean(conn)
        with pytest.raises(RuntimeError, match="the connection is one to the database postgres"):
            clean(conn, database="shop")


@pytest.mark.parametrize(
    "name", ["test_shop", "shop_test", "shop-tests", "pytest_1", "pgrouse_test_0a1b", "test", "Test_gw0"]
)
def test_the_name_of_a_database_says_that_it_is_for_tests(name: str) -> None:
    assert OF_TESTS.search(name)


@pytest.mark.parametrize("name", ["shop", "latest", "contest", "attestations", "testament", "postgres"])
def test_a_name_that_only_contains_the_word_does_not(name: str) -> None:
    assert not OF_TESTS.search(name)


@pytest.mark.long
def test_nothing_is_deleted_while_a_worker_runs(shared: Database) -> None:
    with database(shared.dsn) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("INSERT INTO messages.topic (topic, max_depth) VALUES ('t', 5)")
        with Worker(dsn, handlers={"t": lambda payload: None}, name="w1") as worker:
            eventually(lambda: conn.execute("SELECT FROM messages.worker").fetchall())
            with pytest.raises(RuntimeError, match=rf"run w1.*, process {os.getpid()}\): stop them before"):
                clean(conn)
            assert worker.is_running
        assert conn.execute("SELECT max_depth FROM messages.topic WHERE topic = 't'").fetchone() == (5,)

        clean(conn)


def test_a_worker_that_was_killed_keeps_nothing_from_being_deleted(shared: Database) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with database(shared.dsn) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        register = (
            "INSERT INTO messages.worker (name, host, pid, version, topics, concurrency) "
            "VALUES ('w', %s, %s, '1', '{}', 1)"
        )
        conn.execute(register, [socket.gethostname(), ended.pid])
        clean(conn)

        conn.execute(register, ["elsewhere", ended.pid])
        with pytest.raises(RuntimeError, match="run w "):
            clean(conn)


# Events


def wait_twice(payload: dict[str, int], ctx: Context) -> list[Any]:
    first = ctx.wait_for_event("ok", timeout="1h")
    try:
        return [first, ctx.wait_for_event("ok", timeout="1h")]
    except TimeoutError as error:
        return [first, type(error).__name__]


async def wait_on_a_loop(payload: dict[str, int], ctx: AsyncContext) -> Any:
    return await ctx.wait_for_event("ok", timeout="1h")


def test_perform_gives_the_events_that_it_is_told() -> None:
    assert perform(wait_twice, {}).outcome == "wait_for_event"
    assert perform(wait_twice, {}, events=[("ok", 1)]).outcome == "wait_for_event"
    assert perform(wait_twice, {}, events=[("ok", 1), ("other", 0), ("ok", 2)]).output == [1, 2]
    assert perform(wait_twice, {}, events=[("ok", 1), ("ok", EventTimeout)]).output == [1, "EventTimeout"]
    assert perform(wait_on_a_loop, {}, events=[("ok", {"by": "anna"})]).output == {"by": "anna"}
    assert perform(wait_on_a_loop, {}).after == timedelta(hours=1)


@pytest.mark.parametrize("handler", [wait_twice, wait_on_a_loop])
def test_drain_waits_for_events_and_goes_on_after_their_signal(handler: Any, database: Database) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as conn, Client(conn) as queue:
        sent = publish(conn, "job", {})
        (waiting,) = drain(database.dsn, {"job": handler})
        assert queue.signal(sent, "ok", 1)
        assert queue.signal(sent, "ok", 2)
        (done,) = drain(database.dsn, {"job": handler})

    assert waiting.outcome == "wait_for_event"
    assert done.output in ([1, 2], 1)
