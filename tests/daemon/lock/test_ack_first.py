"""ack_first: a message is completed before its handler runs. A crash loses the work, and never repeats it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.daemon.process import Daemon, Fleet, Journal, end_locks
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

THREAD = {"handler": "rules:hold_in_thread", "ack_policy": "ack_first"}
ASYNC = {"handler": "rules:end", "ack_policy": "ack_first"}
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%messages.complete%%'"


@contextmanager
def completions_held_up(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Block the archive until the block ends: claims continue, completions wait."""
    with conn.transaction():
        conn.execute("LOCK TABLE messages.message_archive IN SHARE MODE")
        yield


@pytest.fixture
def blocker(database: Database) -> psycopg.Connection[Any]:
    return database.connect()


def test_the_message_is_archived_while_its_handler_runs_and_is_not_lost_to_it(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start({"job": THREAD})
    published = queue.publish("job")

    began = journal.entry("start", published)

    assert queue.archived(published).result == "success"
    assert (began["completed"], began["lost"]) == (True, False)
    daemon.open_gate()
    assert journal.entry("end", published)["lost"] is False
    assert daemon.events("message.lock_lost") == []


def test_a_daemon_that_is_killed_while_the_handler_runs_leaves_nothing_to_run_again(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", max_attempts=5, backoff={"kind": "none"})
    first = start({"job": THREAD})
    published = queue.publish("job")
    journal.entry("start", published)

    first.kill()
    end_locks(queue.conn, first)

    second = start({"job": THREAD})
    second.open_gate()
    marker = queue.publish("job")
    journal.entry("end", marker)
    assert len(journal.entries("start", published)) == 1
    assert (queue.archived(published).result, queue.archived(published).attempts) == ("success", 1)


def test_a_message_is_redelivered_if_its_daemon_is_killed_before_completing_it(
    start: Start, queue: Queue, journal: Journal, blocker: psycopg.Connection[Any]
) -> None:
    queue.policy("job", max_attempts=2, backoff={"kind": "none"})
    first = start({"job": ASYNC})

    with completions_held_up(blocker):
        published = queue.publish("job", payload={})
        (waiting,) = eventually(lambda: queue.rows(WAITING))
        first.kill()
        queue.value("SELECT pg_terminate_backend(%s)", [waiting.pid])
        assert journal.entries("start") == []

    end_locks(queue.conn, first)
    start({"job": ASYNC})
    assert eventually(lambda: queue.archived(published)).attempts == 2
    journal.entry("start", published)
    assert len(journal.entries("start", published)) == 1


def test_a_completion_is_repeated_after_a_broken_connection_and_the_handler_runs_once(
    start: Start, queue: Queue, journal: Journal, blocker: psycopg.Connection[Any]
) -> None:
    daemon = start({"job": ASYNC})

    with completions_held_up(blocker):
        published = queue.publish("job", payload={})
        (waiting,) = eventually(lambda: queue.rows(WAITING))
        queue.value("SELECT pg_terminate_backend(%s)", [waiting.pid])
        daemon.event("loop.failed", loop="ack_first")

    journal.entry("start", published)
    assert (queue.archived(published).result, queue.archived(published).attempts) == ("success", 1)
    assert len(journal.entries("start", published)) == 1


def test_a_stop_before_the_completion_releases_the_message_unrun(
    start: Start, queue: Queue, journal: Journal, blocker: psycopg.Connection[Any]
) -> None:
    daemon = start({"job": ASYNC}, shutdown_timeout="0s")

    with completions_held_up(blocker):
        published = queue.publish("job", payload={})
        eventually(lambda: queue.rows(WAITING))
        assert daemon.stop() == 0

    assert journal.entries("start") == []
    assert (queue.message(published).attempts, queue.message(published).claim_id) == (0, None)


def test_a_timeout_stops_the_handler_and_changes_nothing(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("job", max_attempts=5, timeout="0.2 s")
    daemon = start({"job": {"handler": "holding:hold", "ack_policy": "ack_first"}})
    published = queue.publish("job")

    journal.entry("cancelled", published)

    assert "timed_out" in daemon.event("message.ended_after_completion", message_id=published)["reason"]
    assert queue.archived(published).result == "success"


@pytest.mark.parametrize("processes", [1, 2])
def test_the_daemon_logs_at_most_once_delivery_once_at_startup(
    fleet: Fleet, database: Database, processes: int
) -> None:
    daemon = fleet.launch({"job": ASYNC, "other": "work:echo"}, dsn=database.dsn, processes=processes)
    eventually(lambda: len(daemon.events("daemon.started")) == processes, within_s=60)

    (event,) = daemon.events("handler.config_suspicious")

    assert (event["level"], event["key"]) == ("warning", "topics.job.ack_policy")
    file, _, line = event["where"].rpartition(":")
    assert (daemon.folder / file).read_text().splitlines()[int(line) - 1] == 'ack_policy = "ack_first"'
    assert "is not tried again" in event["reason"]
