"""A stop: running handlers may end, unstarted messages are released, and no lock is left behind."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.daemon.process import Daemon, Fleet, Journal, now
from tests.daemon.proxy import Proxy
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


def test_sigterm_lets_running_handlers_end_and_exits_with_0(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "holding:hold"})
    published = queue.publish("job")
    journal.entry("start", published)

    daemon.send(signal.SIGTERM)
    daemon.event("daemon.stopping", signal="SIGTERM")
    daemon.open_gate()

    assert daemon.exit_code() == 0
    assert queue.archived(published).result == "success"


def test_a_stopping_daemon_claims_no_more(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "holding:hold"})
    journal.entry("start", queue.publish("job"))
    daemon.send(signal.SIGTERM)
    daemon.event("daemon.stopping")

    late = queue.publish("job")
    daemon.open_gate()
    daemon.exit_code()

    assert journal.entries("start", late) == []
    assert (queue.message(late).attempts, queue.message(late).claim_id) == (0, None)


def test_an_unstarted_message_is_released_with_its_attempt(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "holding:hold"}, concurrency=1, prefetch=4)
    first, *others = queue.publish_many(5, "job")
    # A claim may be committed that the daemon has not received yet: of that it starts nothing any more.
    journal.entry("start", first)
    eventually(lambda: all(queue.message(each).claim_id for each in others))

    daemon.send(signal.SIGTERM)

    eventually(lambda: not any(queue.message(each).claim_id for each in others))
    assert {queue.message(each).attempts for each in others} == {0}
    assert daemon.alive, "it waits for the one that runs"
    daemon.open_gate()
    assert daemon.exit_code() == 0
    assert [e["id"] for e in journal.entries("start")] == [first]


def test_a_handler_sees_that_the_daemon_is_stopping(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "holding:hold_until_stopping"})
    published = queue.publish("job")
    journal.entry("start", published)

    assert daemon.stop() == 0
    assert len(journal.entries("saw stopping", published)) == 1
    assert queue.archived(published).result == "success"


@pytest.mark.long
@pytest.mark.parametrize("handler", ["hold", "hold_in_thread", "hold_stubbornly", "hold_in_process"])
def test_a_handler_that_still_runs_when_the_drain_ends_is_stopped_and_released_with_its_attempt(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    isolation = "process" if handler.endswith("process") else "none"
    daemon = start({"job": {"handler": f"holding:{handler}", "isolation": isolation}}, shutdown_timeout="0.2s")
    published = queue.publish("job")
    journal.entry("start", published)

    assert daemon.stop() == 0
    assert daemon.events("shutdown.timed_out")[0]["running"] == 1
    assert (queue.message(published).attempts, queue.message(published).claim_id) == (0, None)
    assert queue.message(published).history is None


def test_a_second_signal_ends_the_drain_at_once(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "holding:hold"}, shutdown_timeout="1h")
    published = queue.publish("job")
    journal.entry("start", published)
    daemon.send(signal.SIGTERM)
    daemon.event("daemon.stopping")

    daemon.send(signal.SIGTERM)

    assert daemon.exit_code() == 0
    assert len(journal.entries("cancelled", published)) == 1
    assert (queue.message(published).attempts, queue.message(published).claim_id) == (0, None)


@pytest.mark.parametrize("handler", ["work:echo", "work:echo_in_thread"])
@pytest.mark.parametrize("after", [10, 300])
def test_a_daemon_stopped_under_load_leaves_no_lock_and_loses_nothing(
    start: Start, queue: Queue, journal: Journal, handler: str, after: int
) -> None:
    daemon = start({"job": handler}, claim_connections=4)
    queue.publish_many(2000, "job")
    eventually(lambda: len(journal.path.read_text().splitlines()) >= after)

    assert daemon.stop() == 0

    started = {e["id"] for e in journal.entries("start")}
    waiting = queue.rows("SELECT id, attempts, claim_id FROM messages.message")
    assert {(row.attempts, row.claim_id) for row in waiting} <= {(0, None)}
    assert len(started) + len(waiting) == 2000
    assert len(journal.entries("start")) == len(started)
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'success'") == len(started)


def test_a_stopped_daemon_leaves_the_registry_and_clears_its_flag(start: Start, queue: Queue) -> None:
    daemon = start({"job": "work:echo"})
    eventually(lambda: queue.value("SELECT count(*) FROM messages.worker WHERE pid = %s", [daemon.pid]))

    daemon.stop()

    assert queue.value("SELECT count(*) FROM messages.worker") == 0
    assert queue.value("SELECT count(*) FROM messages.sleeper WHERE armed_until > clock_timestamp()") == 0


def test_a_daemon_that_waits_for_its_database_stops_at_once(fleet: Fleet, database: Database) -> None:
    daemon = fleet.launch({"job": "work:echo"}, dsn=database.server.dsn("no_such_database"))
    daemon.event("loop.failed", loop="start")

    began = now()
    assert daemon.stop() == 0
    assert now() - began < 20, "a drain would take longer"


@contextmanager
def held_up(fleet: Fleet, database: Database) -> Iterator[Daemon]:
    """Launch a daemon whose start waits for a lock of a migration, within the block."""
    with database.connect() as migration, migration.transaction():
        migration.execute("LOCK TABLE messages.migration, messages.topic")
        yield fleet.launch({"job": "work:echo"}, dsn=database.dsn)


def test_a_daemon_whose_start_waits_for_a_lock_stops_at_once(fleet: Fleet, database: Database, queue: Queue) -> None:
    with held_up(fleet, database) as daemon:
        eventually(
            lambda: queue.value(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE starts_with(application_name, 'pgrouse start') AND wait_event_type = 'Lock'"
            )
        )

        assert daemon.stop() == 0
    assert daemon.events("daemon.stopped")


@pytest.mark.long
def test_a_start_that_waits_for_a_lock_continues_when_the_lock_is_released(fleet: Fleet, database: Database) -> None:
    with held_up(fleet, database) as daemon:
        daemon.event("loop.failed", loop="start")

    daemon.event("daemon.started")


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_daemon_whose_database_does_not_answer_any_more_stops_soon_after_the_shutdown_timeout(
    start: Start, queue: Queue, journal: Journal, proxy: Proxy, is_busy: bool
) -> None:
    topics = {"job": "holding:hold", "thread": "holding:hold_in_thread"}
    daemon = start(topics, dsn=proxy.dsn, shutdown_timeout="0.2s")
    for topic in topics if is_busy else ():
        journal.entry("start", queue.publish(topic))

    proxy.stall()
    assert proxy.holds_back.wait(30)
    daemon.open_gate()
    began = now()
    daemon.send(signal.SIGTERM)

    assert daemon.exit_code() == 0
    assert now() - began < 20, "half a minute, if each step waits as long as it may"
