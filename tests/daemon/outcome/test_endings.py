"""Anything a handler raises or returns affects only its own message; the daemon and the other messages continue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import Daemon, Fleet
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Archived = Callable[[int], Any]

TOPICS = {
    "end": "hostile:end",
    "end.thread": "hostile:end_in_thread",
    "end.process": {"handler": "hostile:end_in_thread", "isolation": "process", "concurrency": 1},
    "give": "hostile:give",
    "give.thread": "hostile:give_in_thread",
    "give.process": {"handler": "hostile:give_in_thread", "isolation": "process", "concurrency": 1},
    "fine": "work:echo",
}
ENDINGS = [
    "sys.exit",
    "KeyboardInterrupt",
    "CancelledError",
    "GeneratorExit",
    "StopIteration",
    "RecursionError",
    "MemoryError",
    "ExceptionGroup",
]
OUTPUTS = [
    "a set of objects",
    "NaN",
    "infinity",
    "NUL",
    "a lone surrogate",
    "too large",
    "nested too deeply",
    "a number too long to write",
    "an object without a text",
    "a dict with odd keys",
]


@pytest.fixture(scope="module")
def database(shared: Database) -> Database:
    return shared


@pytest.fixture(scope="module")
def fleet(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("faulty"))
    fleet.start(database.connect(), TOPICS, dsn=database.dsn)
    yield fleet
    fleet.kill()


@pytest.fixture
def daemon(fleet: Fleet) -> Daemon:
    return fleet.daemons[0]


@pytest.fixture
def archived(queue: Queue) -> Archived:
    return lambda published: eventually(lambda: queue.archived(published))


@pytest.mark.parametrize("topic", ["end", "end.thread", "end.process"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_any_exception_of_a_handler_fails_its_message_and_nothing_else(
    daemon: Daemon, queue: Queue, archived: Archived, topic: str, ending: str
) -> None:
    published = queue.publish(topic, payload=Jsonb(ending))
    fine = queue.publish("fine")

    assert archived(published).result == "failed"
    assert "hostile.py" in archived(published).error
    assert archived(fine).result == "success"
    assert daemon.alive
    assert daemon.events("loop.crashed") == []


@pytest.mark.parametrize("topic", ["give", "give.thread", "give.process"])
@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_that_cannot_be_stored_is_dropped_and_logged_and_the_message_succeeds(
    daemon: Daemon, queue: Queue, archived: Archived, topic: str, output: str
) -> None:
    published = queue.publish(topic, payload=Jsonb(output))

    assert (archived(published).result, archived(published).output) == ("success", None)
    assert "dropped" in daemon.event("message.output_dropped", message_id=published)["reason"]
    assert daemon.events("settle.refused") == []
