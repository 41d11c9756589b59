"""A daemon that dies: its messages in flight are retried, and no other daemon is affected."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import AT_ONCE_S, Daemon, Journal, end_locks, is_armed, until_armed
from tests.server.alive import lives
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.mark.every_server
def test_a_message_of_a_killed_daemon_is_retried_while_attempts_remain(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", max_attempts=2, lock_expired_delay="0 s")
    first = start({"job": "holding:hold"})
    published = queue.publish("job")
    journal.entry("start", published)

    first.kill()
    end_locks(queue.conn, first)
    second = start({"job": "holding:hold"})
    second.open_gate()

    archived = eventually(lambda: queue.archived(published))
    assert (archived.result, archived.attempts) == ("success", 2)
    assert archived.history[0]["outcome"] == "lock_expired"
    assert [(e["attempt"], e["pid"]) for e in journal.entries("start", published)] == [(1, first.pid), (2, second.pid)]


def test_a_message_with_one_attempt_is_archived_as_lock_expired_and_dead_message_is_notified(
    start: Start, queue: Queue, journal: Journal, listen: Callable[..., Any]
) -> None:
    first = start({"job": "holding:hold"})
    published = queue.publish("job")
    journal.entry("start", published)
    listener = listen("dead_message")

    first.kill()
    end_locks(queue.conn, first)
    start({"other": "work:echo"})

    archived = eventually(lambda: queue.archived(published))
    assert archived.result == "lock_expired"
    assert f":{first.pid}:" in archived.error
    assert listener.received() == [str(published)]


def test_a_daemon_without_pg_cron_runs_the_maintenance_and_logs_it(start: Start, queue: Queue) -> None:
    assert queue.value("SELECT count(*) FROM pg_extension WHERE extname = 'pg_cron'") == 0

    daemon = start({"job": "work:echo"})

    assert daemon.event("pg_cron.missing")["level"] == "info"
    eventually(lambda: queue.value("SELECT count(*) FROM messages.tick_mark WHERE caller = 'daemon'") >= 5)


def test_a_daemon_killed_asleep_leaves_the_others_awake_at_worst(
    start: Start, queue: Queue, journal: Journal, database: Database
) -> None:
    first = start({"job": "work:echo"})
    second = start({"job": "work:echo"})

    first.kill()

    assert is_armed(database.connect(), first), "its flag is still set: publishes notify it until it expires"
    published = queue.publish("job")
    assert eventually(lambda: journal.entries("start", published), AT_ONCE_S)[0]["pid"] == second.pid


def test_a_daemon_killed_awake_keeps_notifications_to_the_others(
    start: Start, queue: Queue, journal: Journal, database: Database
) -> None:
    first = start({"job": "holding:nap"}, concurrency=1, claim_connections=1)
    queue.publish_many(1000, "job", payload=Jsonb(0.01))
    eventually(lambda: not is_armed(queue.conn, first))
    second = start({"other": "work:echo"})

    first.kill()

    until_armed(database.connect(), second)
    other = queue.publish("other")
    assert eventually(lambda: journal.entries("start", other), AT_ONCE_S)[0]["pid"] == second.pid


@pytest.mark.executed
def test_child_processes_end_with_their_daemon(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": {"handler": "holding:hold_in_process", "isolation": "process"}})
    child = journal.entry("start", queue.publish("job"))["pid"]

    daemon.send(signal.SIGKILL)

    assert child != daemon.pid
    eventually(lambda: not lives(child))
