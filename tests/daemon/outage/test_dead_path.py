"""The connection to the database breaks silently: an answer is lost, or the connection is dead without a signal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgrouse.client.connection import database as connecting
from pgrouse.client.message import Message
from pgrouse.client.processing.worker_client import WorkerClient
from pgrouse.config import config
from pgrouse.handlers.encryption import NoEncryption
from pgrouse.worker.execution import daemon_runtime
from pgrouse.worker.execution.daemon_runtime import DaemonRuntime
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.reporting.metrics_recorder import MetricsRecorder
from tests.daemon.process import Daemon, Journal, now, until_armed
from tests.daemon.proxy import Proxy
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.mark.long
def test_messages_of_a_claim_whose_answer_was_lost_are_released(
    start: Start, queue: Queue, journal: Journal, proxy: Proxy
) -> None:
    queue.policy("job", lock_duration="1 hour")
    daemon = start({"job": "work:echo"}, dsn=proxy.dsn, database={"prepare": False})

    proxy.lose_the_answer_to("messages.claim_with_next_due(")
    published = queue.publish_many(5, "job")

    assert proxy.answer_was_lost.wait(30)
    eventually(lambda: queue.ids() == [])
    assert {queue.archived(each).attempts for each in published} == {1}
    assert sorted(e["id"] for e in journal.entries("start")) == published
    assert daemon.events("loop.failed", loop="claim-0")


def test_a_claim_that_reaches_the_server_after_its_connection_was_lost_locks_nothing(
    start: Start, queue: Queue, proxy: Proxy
) -> None:
    queue.policy("job", lock_duration="1 hour")
    daemon = start({"job": "work:echo"}, dsn=proxy.dsn, database={"prepare": False}, poll_interval="1h")
    until_armed(queue.conn, daemon)
    proxy.delay("messages.claim_with_next_due(")
    first = queue.publish("job")
    assert proxy.was_delayed.wait(30)
    eventually(lambda: queue.ids() == [])
    until_armed(queue.conn, daemon)
    with queue.conn.transaction():
        queue.conn.execute("SET LOCAL session_replication_role = replica")  # no trigger: nothing wakes the daemon
        unseen = queue.publish("job")

    proxy.deliver()
    last = queue.publish("job")

    eventually(lambda: queue.ids() == [])
    assert [queue.archived(each).attempts for each in (first, unseen, last)] == [1, 1, 1]
    assert daemon.events("loop.recovered")


async def end_each(dsn: str, *names: str) -> tuple[set[int], list[bool]]:
    """End the processes of connections with these names, by the first of them.

    Return what it is told, and which of them are open.
    """
    conns = [await psycopg.AsyncConnection.connect(dsn, autocommit=True, application_name=name) for name in names]
    running = await WorkerClient(conns[0], "w").end_backends([each.info.backend_pid for each in conns])
    is_open = [await answers(each) for each in conns]
    for each in conns:
        await each.close()
    return running, is_open


async def answers(conn: psycopg.AsyncConnection[Any]) -> bool:
    try:
        await conn.execute("SELECT")
    except psycopg.OperationalError:
        return False
    return True


def test_only_other_processes_of_the_same_name_are_ended(database: Database) -> None:
    """The server may have given the id of a process that has ended to another one, this connection's own among them."""
    running, is_open = asyncio.run(end_each(database.dsn, "claim-0", "claim-0", "claim-1"))

    assert (len(running), is_open) == (1, [True, False, True])


def test_a_settle_whose_answer_was_lost_is_repeated_and_counted_once(
    start: Start, queue: Queue, journal: Journal, proxy: Proxy
) -> None:
    daemon = start({"job": "work:echo"}, dsn=proxy.dsn, database={"prepare": False})

    proxy.lose_the_answer_to("messages.complete(")
    published = queue.publish("job")

    assert proxy.answer_was_lost.wait(30)
    eventually(lambda: daemon.events("loop.recovered"))
    assert daemon.stop() == 0
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE id = %s", [published]) == 1
    assert len(journal.entries("start", published)) == 1
    assert daemon.events("message.lock_lost") == []


@pytest.mark.long
@pytest.mark.slow
def test_connections_that_died_silently_are_detected_within_half_a_minute(
    start: Start, queue: Queue, journal: Journal, proxy: Proxy
) -> None:
    queue.policy("hold", lock_duration="30 s")
    daemon = start(
        {"job": "work:echo", "hold": "holding:hold"}, dsn=proxy.dsn, poll_interval="1h", maintenance_interval="1h"
    )
    held = queue.publish("hold")
    journal.entry("start", held)
    lock = queue.message(held).lock_expires_at
    until_armed(queue.conn, daemon)

    proxy.go_dead()
    began = now()
    published = queue.publish("job")

    assert eventually(lambda: journal.entries("start", published), within_s=60)[0]["at"] - began < 29
    assert daemon.events("listener.degraded")
    daemon.event("listener.restored", within_s=60)
    assert eventually(lambda: queue.message(held).lock_expires_at > lock, within_s=60), "the heartbeat has a way again"
    daemon.open_gate()
    assert eventually(lambda: queue.archived(held), within_s=60).attempts == 1


@pytest.mark.long
@pytest.mark.slow
def test_a_settle_under_way_on_a_dead_connection_is_not_awaited_much_longer(
    start: Start, queue: Queue, journal: Journal, proxy: Proxy, database: Database
) -> None:
    daemon = start({"hold": "holding:hold"}, dsn=proxy.dsn, poll_interval="1h", maintenance_interval="1h")
    held = queue.publish("hold")
    journal.entry("start", held)
    with database.connect() as other, other.transaction():
        other.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [held])
        daemon.open_gate()
        eventually(lambda: queue.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
        proxy.go_dead()

    daemon.event("listener.degraded", within_s=60)
    began = now()
    daemon.event("loop.failed", within_s=60)
    assert now() - began < 16  # psycopg tries for five seconds to cancel a statement it no longer waits for
    assert eventually(lambda: queue.archived(held), within_s=60).attempts == 1


@pytest.fixture
def through_the_proxy(proxy: Proxy) -> connecting.Database:
    """How a daemon connects through the proxy."""
    return connecting.Database(config.DatabaseSettings(dsn=proxy.dsn, connect_timeout=timedelta(seconds=2)), "w")


@pytest.mark.long
@pytest.mark.slow
def test_a_listener_on_a_connection_that_died_after_the_login_reconnects(
    through_the_proxy: connecting.Database, proxy: Proxy
) -> None:
    async def listen() -> psycopg.AsyncConnection:
        return await through_the_proxy.connect_listener("new_message")

    proxy.die_at("LISTEN")
    with pytest.raises(TimeoutError):
        asyncio.run(listen())

    async def listen_again() -> bool:
        async with await listen() as conn:
            return bool(await (await conn.execute("SELECT FROM pg_listening_channels()")).fetchall())

    assert asyncio.run(listen_again())


@pytest.mark.long
@pytest.mark.slow
def test_a_completion_before_its_handler_does_not_wait_for_a_dead_connection(
    through_the_proxy: connecting.Database, proxy: Proxy, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_runtime, "COMPLETE_TIMEOUT_S", 0.5)
    published = queue.publish("job")
    message = Message(*queue.claim_one("job")[: len(Message._fields)])

    async def complete() -> list[int]:
        in_flight = InFlight()
        in_flight.add([message], 0.0)
        async with (
            DaemonRuntime(through_the_proxy, in_flight, MetricsRecorder({}), NoEncryption()) as surroundings,
            asyncio.timeout(60),
        ):
            return await surroundings.complete_first([message])

    proxy.die_at("messages.complete(")

    assert asyncio.run(complete()) == []
    assert queue.archived(published).result == "success"
