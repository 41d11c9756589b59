"""A role that may only connect can fill the server's notification queue.

No statement fails for that, and daemons find their work by polling.

The queue holds 8 GB unless it is made smaller, which PostgreSQL 17 and later allow: here it has 64 pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgrouse import publish
from pgrouse.web.http.problem import database_problem
from tests.daemon.process import AT_ONCE_S, Fleet, is_armed, until_armed
from tests.server import servers
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.server.servers import Missing, Servers
from tests.sql.queue import Queue

MOST_BYTES = 7900  # of a payload
FULL = psycopg.errors.ProgramLimitExceeded


@pytest.fixture(scope="module")
def small(session_servers: Servers) -> Iterator[Postgres]:
    """A server with a small notification queue."""
    try:
        with session_servers.private_server(servers.EMBEDDED, max_notify_queue_pages="64") as server:
            yield server
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def database(small: Postgres) -> Iterator[Database]:
    with small.new_database(template=small.migrated) as database:
        yield database


@pytest.fixture
def fleet(tmp_path: Path, database: Database) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.kill()


@contextmanager
def full(database: Database) -> Iterator[None]:
    """Fill the queue as a role that may only connect, and keep it full."""
    name = sql.Identifier(f"visitor_{os.getpid()}")
    admin = database.connect()
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
    try:
        with database.connect() as idle, database.connect() as sender:
            for conn in (idle, sender):
                conn.execute(sql.SQL("SET SESSION AUTHORIZATION {}").format(name))
            idle.execute("LISTEN whatever")
            idle.execute("BEGIN; SELECT 1")
            fill(sender)
            yield
    finally:
        admin.execute(sql.SQL("DROP ROLE {}").format(name))


def fill(conn: psycopg.Connection[Any]) -> None:
    """Notify until the server refuses it.

    Reading how full the queue is frees what all have received, so it is tried again then.
    """
    for _ in range(1000):
        with suppress(FULL):
            conn.execute("SELECT pg_notify('whatever', repeat('x', %s))", [MOST_BYTES])
            continue
        if conn.execute("SELECT pg_notification_queue_usage()").fetchone() == (1.0,):
            return
    pytest.fail("the queue does not get full")


def claimed(queue: Queue, topic: str) -> tuple[list[int], list[int]]:
    queue.publish(topic)
    row = queue.row("SELECT id, claim_id FROM messages.claim('w', ARRAY[%s], 1)", [topic])
    return [row.id], [row.claim_id]


def a_publish(queue: Queue) -> None:
    queue.arm("w")
    publish(queue.conn, "t", 1)
    queue.publish_many(3, "t")


def a_publish_above_read_committed(queue: Queue) -> None:
    queue.arm("w")
    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        queue.publish("t")


def a_publish_with_notify_always(queue: Queue) -> None:
    queue.policy("t", notify="always")
    queue.publish("t")


def a_retry(queue: Queue) -> None:
    ids, claims = claimed(queue, "t")
    queue.arm("w")
    queue.row("SELECT messages.retry(%s, %s, %s, %s::interval[])", [ids, claims, ["no"], ["0 s"]])


def a_failure(queue: Queue) -> None:
    ids, claims = claimed(queue, "t")
    queue.row("SELECT messages.fail(%s, %s, %s)", [ids, claims, ["no"]])
    assert queue.value("SELECT result FROM messages.message_archive WHERE id = %s", ids) == "failed"


def a_failure_that_opens_a_breaker(queue: Queue) -> None:
    queue.policy("t", breaker='{"failure_rate": 0.1, "min_attempts": 1}')
    a_failure(queue)
    queue.conn.execute("SELECT messages.update_breakers()")


def an_end_that_is_waited_for(queue: Queue) -> None:
    ids, claims = claimed(queue, "t")
    queue.row("SELECT * FROM messages.wait_for(%s, '1 minute')", ids)
    queue.row("SELECT messages.complete(%s, %s)", [ids, claims])
    assert queue.value("SELECT count(*) FROM messages.waiter") == 0


def a_cancellation(queue: Queue) -> None:
    ids, _ = claimed(queue, "t")
    assert queue.value("SELECT messages.cancel(%s)", [ids]) == ids


def a_pause(queue: Queue) -> None:
    queue.row("SELECT messages.pause('t')")
    queue.row("SELECT messages.pause('t', p_channel => 'c')")
    assert queue.value("SELECT messages.resume('t')")


def a_schedule(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.schedule (name, cron, topic, payload) VALUES ('s', '* * * * *', 't', '1')")


def a_tick_that_writes_alerts_and_renotifies(queue: Queue) -> None:
    queue.publish("t", wait="-1 hour")
    queue.policy("t", lock_duration="1 hour")
    queue.conn.execute("UPDATE messages.alert_threshold SET backlog_age = '1 s' WHERE topic = '*'")
    ticked = queue.rows("SELECT task, count FROM messages.tick('hand')")
    assert min(row.count for row in ticked) >= 0


OPERATIONS: list[Callable[[Queue], None]] = [
    a_publish,
    a_publish_above_read_committed,
    a_publish_with_notify_always,
    a_retry,
    a_failure,
    a_failure_that_opens_a_breaker,
    an_end_that_is_waited_for,
    a_cancellation,
    a_pause,
    a_schedule,
    a_tick_that_writes_alerts_and_renotifies,
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.__name__.replace("_", " "))
def test_each_statement_succeeds_while_the_queue_is_full(
    database: Database, queue: Queue, operation: Callable[[Queue], None]
) -> None:
    with full(database):
        operation(queue)


def test_notifications_are_sent_again_as_soon_as_there_is_room(database: Database, queue: Queue) -> None:
    with full(database):
        assert queue.value("SELECT messages.notify('a', ARRAY['x'])") is False

    eventually(lambda: queue.value("SELECT messages.notify('a', ARRAY['x'])") is True)


def test_a_payload_that_would_fill_the_queue_by_itself_is_not_sent(queue: Queue) -> None:
    many = [str(number).rjust(400) for number in range(2000)]

    assert queue.value("SELECT messages.notify('a', %s)", [many]) is False
    assert queue.value("SELECT messages.notify('a', %s)", [many[:300]]) is True


def test_the_schema_notifies_only_by_the_function_that_checks_first(queue: Queue) -> None:
    found = queue.rows(
        "SELECT p.proname FROM pg_proc AS p "
        "WHERE p.pronamespace = 'messages'::regnamespace AND p.prosrc ~* 'pg_notify|\\mNOTIFY\\s+\\w+\\s*[,;]'"
    )

    assert [row.proname for row in found] == ["notify"]


@pytest.mark.parametrize("role", ["messages_publisher", "messages_worker"])
def test_publishers_and_workers_may_call_it(queue: Queue, role: str) -> None:
    with queue.conn.transaction():
        queue.conn.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        assert queue.value("SELECT messages.notify('a', ARRAY['x'])") is True


def test_an_idle_daemon_reports_a_degraded_listener_polls_and_recovers(
    fleet: Fleet, database: Database, queue: Queue
) -> None:
    daemon = fleet.start(
        queue.conn, {"job": "work:echo"}, dsn=database.dsn, poll_interval="1h", degraded_poll_interval="0.2s"
    )

    with full(database):
        event = daemon.event("listener.degraded", within_s=60)
        eventually(lambda: not is_armed(queue.conn, daemon), within_s=60)
        published = [queue.publish("job") for _ in range(5)]
        eventually(lambda: all(queue.archived(each) for each in published), within_s=60)
        eventually(lambda: queue.value("SELECT status ->> 'listener' FROM messages.worker") == "degraded", within_s=60)
        connected = len(daemon.events("listener.connected"))

    assert "queue of notifications is full" in event["reason"]
    daemon.event("listener.restored", within_s=60)
    until_armed(queue.conn, daemon)
    last = queue.publish("job")
    eventually(lambda: queue.archived(last), within_s=AT_ONCE_S)
    assert len(daemon.events("listener.connected")) == connected, "it did not reconnect needlessly"
    assert daemon.events("loop.failed") == []


def test_over_http_a_full_queue_is_not_reported_as_a_too_large_message(database: Database) -> None:
    with full(database), pytest.raises(FULL) as refused:
        database.connect().execute("NOTIFY whatever")

    problem = database_problem(refused.value)

    assert (problem.status, problem.code) == (503, "notify_queue_full")
    assert "Retry-After" in problem.headers
