"""A worker that is scaled runs more or fewer handlers at once, without a restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.mark.long
def test_a_worker_runs_as_many_handlers_as_it_is_scaled_to(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "holding:hold"}, concurrency=1)
    (worker,) = eventually(lambda: queue.rows("SELECT name FROM messages.worker"))
    published = [queue.publish("job") for _ in range(3)]
    journal.entry("start", published[0])
    assert _started(journal, published) == 1

    queue.call("scale_worker", worker.name, 3)

    scaled = daemon.event("worker.scaled")
    assert (scaled["worker"], scaled["concurrency"]) == (worker.name, 3)
    eventually(lambda: _started(journal, published) == 3)
    queue.call("scale_worker", worker.name)
    daemon.event("worker.scaled", concurrency=1)
    daemon.open_gate()
    eventually(lambda: queue.ids() == [])


@pytest.mark.long
def test_a_drain_after_scaling_is_one_graceful_stop(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "holding:hold"}, concurrency=1)
    (worker,) = eventually(lambda: queue.rows("SELECT name FROM messages.worker"))
    running = queue.publish("job")
    journal.entry("start", running)

    queue.call("drain_worker", worker.name)
    daemon.event("daemon.stopping")
    queue.call("scale_worker", worker.name, 2)
    daemon.event("worker.scaled")
    daemon.open_gate()

    assert daemon.exit_code() == 0
    assert queue.archived(running).result == "success"


def _started(journal: Journal, published: list[int]) -> int:
    return sum(bool(journal.entries("start", each)) for each in published)
