"""A daemon that is frozen for longer than its locks and then resumes: it is fenced."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.fixture
def frozen(start: Start, queue: Queue, journal: Journal, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A daemon that was stopped by SIGSTOP while it held a message."""
    queue.policy("job", max_attempts=2, lock_duration="1 s", lock_expired_delay="0 s")
    # Its lock is ended by the other daemon, which starts later; that one's lock is never ended.
    daemon = start({"job": request.param}, maintenance_interval="1h")
    queue.publish("job")
    journal.entry("start")
    daemon.send(signal.SIGSTOP)
    queue.policy("job", lock_duration="1 hour")
    yield daemon
    daemon.send(signal.SIGCONT)


@pytest.mark.long
@pytest.mark.parametrize("frozen", ["holding:hold"], indirect=True)
def test_a_handler_is_cancelled_when_its_frozen_daemon_resumes_and_the_second_result_counts(
    frozen: Daemon, start: Start, queue: Queue, journal: Journal
) -> None:
    second = start({"job": "holding:hold"})
    eventually(lambda: len(journal.entries("start")) == 2)
    second.open_gate()
    (published,) = {e["id"] for e in journal.entries("start")}
    eventually(lambda: queue.archived(published))

    frozen.send(signal.SIGCONT)

    assert frozen.event("message.lock_lost", message_id=published)["attempt"] == 1
    assert journal.entry("cancelled", published)["pid"] == frozen.pid
    archived = queue.archived(published)
    assert (archived.result, archived.attempts) == ("success", 2)
    assert f":{second.pid}:" in archived.handled_by
