"""Fixtures for the tests of the daemon: a queue, and real daemon processes on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemon.preloaded import Forked
from tests.daemon.process import Daemon, Fleet, Journal, execute
from tests.daemon.runs import Runs
from tests.server.postgres import Database
from tests.sql.queue import Queue


@pytest.fixture
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """The daemons of this test; all are killed at its end, before their database is dropped."""
    for name in {"database", "durable"} & set(request.fixturenames):
        request.getfixturevalue(name)
    fleet = Fleet(tmp_path, execute if request.node.get_closest_marker("executed") else Forked)
    yield fleet
    fleet.kill()


@pytest.fixture
def journal(fleet: Fleet) -> Journal:
    """What the handlers of all daemons of this test write."""
    return fleet.journal


@pytest.fixture
def start(fleet: Fleet, database: Database) -> Callable[..., Daemon]:
    """`start({"job": "work:echo"})` starts a daemon on this test's database and returns when it is armed."""
    return lambda topics, **settings: fleet.start(database.connect(), topics, **{"dsn": database.dsn, **settings})


@pytest.fixture
def runs(queue: Queue) -> Runs:
    """The runs that handlers of the module `timed` record."""
    return Runs(queue)


@pytest.fixture
def probe_daemon(start: Callable[..., Daemon]) -> Daemon:
    """A daemon for the messages by which `Runs.until_done` finds out how slow the machine is."""
    return start({"probe": "timed:probe"})


@pytest.fixture
def two_daemons(start: Callable[..., Daemon], database: Database) -> Callable[..., list[Daemon]]:
    """Start two daemons that record their runs, and return when both are armed.

    It is called as `two_daemons({"job": "timed:run"})`.
    """
    return lambda topics, **settings: [
        start(topics, **{"environ": {"RUNS": database.dsn}, "concurrency": 20, **settings}) for _ in range(2)
    ]
