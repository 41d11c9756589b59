"""Runs that continue although their lock is lost: what they may still do, and what not."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemon.process import Daemon, Fleet
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue, Row

Start = Callable[..., Daemon]


@pytest.fixture
def fleet(tmp_path: Path, database: Database) -> Iterator[Fleet]:
    """The daemons of this test; all are killed at its end, before their database is dropped."""
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.kill()


@pytest.fixture
def start(fleet: Fleet, database: Database) -> Start:
    """`start({"job": "work:echo"})` starts a daemon and returns when it sleeps and would be notified of a publish."""
    return lambda topics, **settings: fleet.start(database.connect(), topics, **{"dsn": database.dsn, **settings})


def take_over(queue: Queue, daemon: Daemon, published: int) -> Row:
    """Freeze a daemon that holds a message, let its lock expire, and claim the message as another worker."""
    daemon.send(signal.SIGSTOP)
    queue.conn.execute(
        "UPDATE messages.message SET lock_expires_at = clock_timestamp() - interval '1 s' WHERE id = %s", [published]
    )
    queue.value("SELECT count(*) FROM messages.expire_locks()")
    return eventually(queue.claim)[0]


def keep(queue: Queue, claimed: Row, name: str) -> None:
    assert queue.value("SELECT messages.save_step(%s, %s, %s, '1')", [claimed.id, claimed.claim_id, name])


def thaw(daemon: Daemon) -> None:
    daemon.open_gate()
    daemon.send(signal.SIGCONT)


@pytest.fixture
def long_timeouts(queue: Queue) -> Queue:
    queue.policy(max_attempts=5, backoff={"kind": "none"}, lock_expired_delay="0 s", lock_duration="1 hour")
    return queue


def test_a_stale_run_does_not_repeat_a_step_that_an_earlier_attempt_saved(
    long_timeouts: Queue, start: Start, fleet: Fleet
) -> None:
    published = long_timeouts.publish(payload="false")
    first = long_timeouts.claim_one()
    keep(long_timeouts, first, "buy")
    long_timeouts.settle("retry", [first], ["boom"], ["0 s"])
    daemon = start({"t": "steps:buy_late"}, maintenance_interval="1h")
    fleet.journal.entry("start", published)

    take_over(long_timeouts, daemon, published)
    thaw(daemon)

    assert "is not this worker's any more" in fleet.journal.entry("lost", published)["said"]
    assert fleet.journal.entries("ran", published) == []


def test_a_stale_run_that_has_loaded_its_steps_does_none_that_a_later_attempt_saved(
    long_timeouts: Queue, start: Start, fleet: Fleet
) -> None:
    published = long_timeouts.publish(payload="true")
    daemon = start({"t": "steps:buy_late"}, maintenance_interval="1h")
    fleet.journal.entry("start", published)

    second = take_over(long_timeouts, daemon, published)
    keep(long_timeouts, second, "buy")
    thaw(daemon)

    assert "is not this worker's any more" in fleet.journal.entry("lost", published)["said"]
    assert [entry["step"] for entry in fleet.journal.entries("ran", published)] == ["first"]
