"""A worker that is requested to drain, by SQL or over HTTP, does the same as on SIGTERM."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.process import Daemon, Fleet, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue, Row

Start = Callable[..., Daemon]


@pytest.mark.long
def test_a_drain_lets_running_handlers_end_claims_no_more_and_exits_with_0(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start({"job": "holding:hold"})
    running = queue.publish("job")
    journal.entry("start", running)
    (worker,) = eventually(lambda: queue.rows("SELECT name FROM messages.worker"))

    assert queue.call("drain_worker", worker.name) is True
    daemon.event("daemon.stopping")
    late = queue.publish("job")
    daemon.open_gate()

    assert daemon.exit_code() == 0
    assert queue.archived(running).result == "success"
    assert queue.message(late).attempts == 0


@pytest.mark.long
def test_a_drain_of_a_supervisor_drains_all_its_processes(fleet: Fleet, database: Database, queue: Queue) -> None:
    daemon = fleet.launch({"job": "holding:hold"}, dsn=database.dsn, processes=2, concurrency=1)
    workers = eventually(lambda: _both(queue))

    queue.call("drain_worker", workers[0].name)

    assert daemon.exit_code() == 0
    assert queue.rows("SELECT FROM messages.worker") == []


def _both(queue: Queue) -> list[Row]:
    found = queue.rows("SELECT name FROM messages.worker")
    return found if len(found) == 2 else []
