"""handlers.middleware in a daemon: around handlers of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon.process import HANDLERS, Daemon, Fleet, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
ASYNC, BLOCKING = ["outer", "inner"], ["blocking"]
KINDS: dict[str, tuple[Any, list[str]]] = {
    "loop": ("middlewares:on_the_loop", ASYNC),
    "thread": ("middlewares:in_thread", BLOCKING),
    "process": ({"handler": "middlewares:in_process", "isolation": "process"}, BLOCKING),
    "async_process": ({"handler": "middlewares:async_in_process", "isolation": "process"}, ASYNC),
}


def around(*names: str) -> dict[str, Any]:
    return {"handlers": {"import_path": [str(HANDLERS)], "middleware": [f"middlewares:{name}" for name in names]}}


def test_it_is_around_handlers_of_its_kind(start: Start, queue: Queue, journal: Journal) -> None:
    start({kind: handler for kind, (handler, _) in KINDS.items()}, sections=around("outer", "blocking", "inner"))

    published = {kind: queue.publish(kind) for kind in KINDS}

    for kind, each in published.items():
        assert eventually(lambda each=each: queue.archived(each), 60).output == {"changed": 1}, kind
    ran = {kind: [e["what"] for e in journal.entries() if e["topic"] == kind] for kind in KINDS}
    assert ran == {kind: expected for kind, (_, expected) in KINDS.items()}
    assert len(journal.entries()) == sum(map(len, ran.values()))


@pytest.mark.long
def test_it_sees_that_its_handler_is_stopped(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("job", timeout="1 s")
    daemon = start({"job": "middlewares:forever"}, sections=around("noting_the_end"))

    published = queue.publish("job")

    assert daemon.event("attempt.timed_out", message_id=published)
    assert journal.entry("CancelledError")


def test_middleware_of_one_kind_is_a_warning_if_handlers_are_of_both(start: Start) -> None:
    daemon = start({"a": "middlewares:on_the_loop", "b": "middlewares:in_thread"}, sections=around("outer"))

    (event,) = daemon.events("handler.config_suspicious")
    assert event["key"] == "handlers.middleware"
    assert "all of it is async: it is not around the handlers of b" in event["reason"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("needs_more", "middlewares:needs_more is called as needs_more(ctx, call_next): too many positional arguments"),
        ("nothing", "middlewares has no function nothing"),
    ],
)
def test_what_cannot_be_middleware_is_one_problem(fleet: Fleet, database: Database, name: str, reason: str) -> None:
    topics = {"a": "middlewares:on_the_loop", "b": "middlewares:in_thread"}
    daemon = fleet.launch(topics, dsn=database.dsn, sections=around(name))

    assert daemon.exit_code() == 78
    (line,) = [line for line in daemon.log.read_text().splitlines() if "middleware" in line]
    assert "handlers.middleware" in line
    assert reason in line
