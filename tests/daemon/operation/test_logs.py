"""What a daemon logs of its handlers.

Every line names its message, failures come with their traceback, successes at debug.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
KINDS: dict[str, Any] = {
    "thread": "speaking:in_thread",
    "loop": "speaking:on_the_loop",
    "process": {"handler": "speaking:in_process", "isolation": "process", "concurrency": 2},
    "batch": {"handler": "speaking:batch", "batch_size": 1},
}
FAILING: dict[str, Any] = {
    "thread": "speaking:fail",
    "loop": "speaking:fail_on_the_loop",
    "process": {"handler": "speaking:fail_in_process", "isolation": "process", "concurrency": 1},
}


def test_every_line_within_a_handler_names_its_message(start: Start, queue: Queue) -> None:
    daemon = start(KINDS)

    published = [(queue.publish(kind), kind, 1) for _ in range(5) for kind in KINDS]

    for each, kind, _ in published:
        assert eventually(lambda each=each: queue.archived(each), 60).result == "success", kind  # type: ignore[misc]
    for event in ("said", "said.by_structlog"):
        said = Counter((e["message_id"], e["topic"], e["attempt"]) for e in daemon.events(event))
        assert said == {line: 3 if line[1] == "loop" else 1 for line in published}
    assert {e["logger"] for e in daemon.events("said")} == {"shop.library"}


def test_a_failure_is_logged_with_its_traceback(start: Start, queue: Queue) -> None:
    daemon = start(FAILING)

    published = {kind: queue.publish(kind, payload=Jsonb({"card": "4111"})) for kind in FAILING}

    for kind, each in published.items():
        failed = daemon.event("attempt.failed", message_id=each)
        assert (kind, failed["reason"]) == (kind, "KeyError: 'missing'")
        assert "in _look_up" in failed["exception"]
        assert "speaking.py" in failed["exception"]
    assert "4111" not in daemon.log.read_text()


def test_the_reason_is_the_line_that_names_the_error(start: Start, queue: Queue) -> None:
    daemon = start({"job": "speaking:fail_at_length"})

    published = queue.publish("job")

    assert daemon.event("attempt.failed", message_id=published)["reason"] == "OSError: the disk is full"


def test_a_success_is_one_line_at_debug_and_psycopg_adds_none(start: Start, queue: Queue) -> None:
    daemon = start(
        {"job": "speaking:quiet", "batch": {"handler": "batches:return_outcomes", "batch_size": 2}}, log_level="debug"
    )

    published = queue.publish("job")
    batched = queue.publish("batch", payload=Jsonb("fine"))

    assert daemon.event("message.completed", message_id=published)["took_s"] >= 0.01
    assert daemon.event("message.completed", message_id=batched)["topic"] == "batch"
    assert not [e for e in daemon.logged() if str(e.get("logger", "")).startswith("psycopg")]


def test_a_success_is_not_logged_at_info(start: Start, queue: Queue) -> None:
    daemon = start({"job": "speaking:quiet"})

    published = queue.publish("job")

    assert eventually(lambda: queue.archived(published)).result == "success"
    daemon.stop()
    assert not daemon.events("message.completed")


def test_a_cancelled_handler_is_logged_as_cancelled(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "speaking:hold"})
    published = queue.publish("job")
    journal.entry("start")

    queue.value("SELECT messages.cancel(%s)", [[published]])

    assert daemon.event("message.cancelled", message_id=published)["level"] == "info"
    assert not daemon.events("message.lock_lost")


@pytest.mark.long
def test_a_handler_that_blocks_the_event_loop_is_named(start: Start, queue: Queue) -> None:
    daemon = start({"job": "speaking:block"})

    published = queue.publish("job")

    blocked = daemon.event("event_loop.blocked")
    assert (blocked["handler"], blocked["topic"], blocked["message_id"]) == ("speaking:block", "job", published)
    assert blocked["where"].endswith("in block")
    assert "speaking.py:" in blocked["where"]
