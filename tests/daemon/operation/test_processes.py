"""worker.processes: several daemons under one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.daemon.process import Daemon, Fleet, Journal
from tests.server.alive import lives
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue


@pytest.fixture
def pair(fleet: Fleet, database: Database, queue: Queue) -> Daemon:
    """A supervisor with two processes, both registered."""
    daemon = fleet.launch({"job": "holding:hold"}, dsn=database.dsn, processes=2, concurrency=1)
    eventually(lambda: len(pids(queue)) == 2)
    return daemon


def pids(queue: Queue) -> set[int]:
    return {row.pid for row in queue.rows("SELECT pid FROM messages.worker")}


@pytest.mark.long
@pytest.mark.executed
def test_all_processes_work_and_all_stop(pair: Daemon, queue: Queue, journal: Journal) -> None:
    working = pids(queue)
    queue.publish_many(2, "job")
    eventually(lambda: {e["pid"] for e in journal.entries("start")} == working)

    pair.send(signal.SIGTERM)
    eventually(lambda: len(pair.events("daemon.stopping")) == 2)
    pair.open_gate()

    assert pair.exit_code() == 0
    assert pids(queue) == set()
    assert queue.ids() == []


@pytest.mark.long
def test_a_process_that_dies_is_restarted_and_the_others_continue(pair: Daemon, queue: Queue, journal: Journal) -> None:
    queue.publish("job")
    busy = journal.entry("start")["pid"]
    (idle,) = pids(queue) - {busy}

    os.kill(idle, signal.SIGKILL)

    assert pair.event("process.exited")["exit_code"] == -signal.SIGKILL
    eventually(lambda: len(pids(queue)) == 3)
    pair.open_gate()
    assert journal.entry("end")["pid"] == busy


@pytest.mark.long
def test_processes_end_with_their_supervisor_and_lose_nothing(pair: Daemon, queue: Queue, journal: Journal) -> None:
    published = queue.publish("job")
    journal.entry("start")

    pair.send(signal.SIGKILL)
    eventually(lambda: len(pair.events("daemon.stopping")) == 2)
    pair.open_gate()

    eventually(lambda: pids(queue) == set())
    assert queue.archived(published).result == "success"


def running(pids: list[int]) -> list[int]:
    """Return those that have not ended; a zombie has."""
    return [pid for pid in pids if lives(pid)]


@pytest.mark.long
def test_processes_whose_supervisor_is_killed_during_their_start_end(
    fleet: Fleet, database: Database, queue: Queue
) -> None:
    daemon = fleet.launch({"job": "holding:hold"}, dsn=database.dsn, processes=2)
    started = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children")
    children = eventually(
        lambda: found if len(found := [int(pid) for pid in started.read_text().split()]) == 2 else None
    )

    daemon.send(signal.SIGKILL)

    assert children is not None
    eventually(lambda: running(children) == [])
    assert pids(queue) == set()
