"""handlers.lifespan: what handlers share, in the daemon, its threads and its children.

Some tests are about a lifespan that fails or hangs.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import HANDLERS, Daemon, Fleet, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
KINDS: dict[str, Any] = {
    "loop": "lifespans:on_the_loop",
    "thread": "lifespans:in_thread",
    "batch": {"handler": "lifespans:batch", "batch_size": 2},
    "process": {"handler": "lifespans:in_process", "isolation": "process", "concurrency": 1},
    "async_process": {"handler": "lifespans:async_in_process", "isolation": "process", "concurrency": 1},
}


def handlers(lifespan: str, **more: Any) -> dict[str, Any]:
    return {"handlers": {"import_path": [str(HANDLERS)], "lifespan": f"lifespans:{lifespan}", **more}}


@pytest.mark.parametrize("lifespan", ["lifespan", "blocking"])
def test_handlers_share_what_it_yields_and_it_ends_with_the_daemon(
    start: Start, queue: Queue, journal: Journal, lifespan: str
) -> None:
    daemon = start(KINDS, sections=handlers(lifespan))

    published = [(kind, queue.publish(kind)) for kind in KINDS for _ in range(3)]

    got = {(kind, eventually(lambda each=each: queue.archived(each), 60).output) for kind, each in published}
    assert {kind for kind, pid in got if pid == daemon.pid} == {"loop", "thread", "batch"}
    assert len(got) == len(KINDS)
    outputs = {pid for _, pid in got}
    assert daemon.stop() == 0
    opened = {e["pid"] for e in journal.entries("opened")}
    assert len(opened) == 3, "the daemon, and a child for each kind of process"
    assert opened == ({daemon.pid, *outputs})
    assert {e["pid"] for e in journal.entries("closed")} == opened
    assert len(journal.entries("opened")) == len(journal.entries("closed")) == len(opened)


@pytest.mark.long
def test_the_lifespan_of_a_child_that_replaced_a_dead_one_ends_with_the_daemon(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start({"job": KINDS["process"]}, sections=handlers("lifespan"))
    dying = queue.publish("job", payload=Jsonb("die"), max_attempts=1)
    assert "exit code 3" in eventually(lambda: queue.archived(dying), 60).error

    published = queue.publish("job")

    child = eventually(lambda: queue.archived(published), 60).output
    assert daemon.stop() == 0
    assert {e["pid"] for e in journal.entries("closed")} == {daemon.pid, child}


def test_without_a_lifespan_resources_are_none(start: Start, queue: Queue) -> None:
    start({"job": "lifespans:without"})

    published = queue.publish("job")

    assert eventually(lambda: queue.archived(published)).output is None


def test_it_ends_after_the_last_handler(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "lifespans:stop_later"}, sections=handlers("lifespan"))
    queue.publish("job")
    journal.entry("start")

    assert daemon.stop() == 0

    assert [e["what"] for e in journal.entries()] == ["opened", "start", "handler ended", "closed"]


@pytest.mark.long
def test_it_is_opened_again_by_a_reload(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "lifespans:on_the_loop"}, sections=handlers("lifespan"))

    daemon.send(signal.SIGHUP)
    eventually(lambda: len(journal.entries("opened")) == 2, 60)

    assert [e["what"] for e in journal.entries()] == ["opened", "closed", "opened"]
    published = queue.publish("job")
    assert eventually(lambda: queue.archived(published)).output == daemon.pid


@pytest.mark.parametrize(
    ("lifespan", "reason"),
    [
        ("failing", "ConnectionError: no redis ("),
        ("hanging", "did not start within 1 s (handlers.startup_timeout)"),
    ],
)
def test_a_start_that_fails_ends_the_daemon(fleet: Fleet, database: Database, lifespan: str, reason: str) -> None:
    daemon = fleet.launch(
        {"job": "lifespans:in_thread"}, dsn=database.dsn, sections=handlers(lifespan, startup_timeout="1s")
    )

    assert daemon.exit_code() == 1

    text = daemon.log.read_text()
    assert f"pgrouse: handlers.lifespan: lifespans:{lifespan} " in text
    assert reason in text
    assert daemon.event("lifespan.failed")["level"] == "critical"
    assert not daemon.events("daemon.started")


def test_a_signal_stops_a_start_that_hangs(fleet: Fleet, database: Database, journal: Journal) -> None:
    daemon = fleet.launch({"job": "lifespans:in_thread"}, dsn=database.dsn, sections=handlers("hanging"))
    journal.entry("hanging")

    assert daemon.stop(within_s=20) == 0


@pytest.mark.long
def test_an_end_that_hangs_is_given_up_after_the_shutdown_timeout(start: Start) -> None:
    daemon = start({"job": "lifespans:in_thread"}, sections=handlers("hanging_at_end"), shutdown_timeout="1s")

    began = time.monotonic()
    assert daemon.stop() == 0

    assert daemon.events("lifespan.timed_out")
    assert time.monotonic() - began < 20


def test_a_lifespan_that_breaks_stops_the_daemon(start: Start, queue: Queue) -> None:
    daemon = start({"job": "lifespans:in_thread"}, sections=handlers("breaking"))

    daemon.open_gate("break")

    assert daemon.exit_code() == 1
    assert "redis is gone" in daemon.event("lifespan.failed")["exception"]


@pytest.mark.long
def test_a_child_whose_lifespan_fails_fails_the_attempt_and_the_next_one_tries_again(
    start: Start, queue: Queue
) -> None:
    queue.policy("job", max_attempts=20, backoff={"kind": "constant", "base": "1 s"})
    daemon = start(
        {"job": {"handler": "lifespans:in_process", "isolation": "process", "concurrency": 1}},
        sections={"handlers": {"import_path": [str(HANDLERS)], "lifespan": "lifespans:failing_in_children_until_open"}},
    )

    published = queue.publish("job")
    assert (
        "handlers.lifespan: lifespans:failing_in_children_until_open failed: ConnectionError: no redis"
        in (daemon.event("attempt.failed", message_id=published)["reason"])
    )
    daemon.open_gate("redis")

    assert eventually(lambda: queue.archived(published), 60).result == "success"


@pytest.mark.parametrize(
    ("lifespan", "reason"),
    [
        ("undecorated", "is no context manager: decorate it with @contextlib.asynccontextmanager"),
        ("needs_an_argument", "is called without arguments: missing a required argument: 'app'"),
        ("nothing", "lifespans has no function nothing"),
    ],
)
def test_what_cannot_be_a_lifespan_is_refused_at_start(
    fleet: Fleet, database: Database, lifespan: str, reason: str
) -> None:
    daemon = fleet.launch({"job": "lifespans:in_thread"}, dsn=database.dsn, sections=handlers(lifespan))

    assert daemon.exit_code() == 78
    assert "handlers.lifespan" in daemon.log.read_text()
    assert reason in daemon.log.read_text()
