"""Context variables, structlog's bindings and the decimal context of attempts.

Each attempt begins with those of the worker's start, whatever others leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import HANDLERS, Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
# What the module of the handlers sets when it is imported.
AT_START = {"left": "import", "bound": {"app": "shop"}, "digits": 40}
KINDS: dict[str, Any] = {
    "at_once": "contexts:at_once",
    "waits": "contexts:waits",
    "thread": "contexts:in_thread",
    "process": {"handler": "contexts:in_thread", "isolation": "process", "concurrency": 1},
    "async_process": {"handler": "contexts:waits", "isolation": "process", "concurrency": 1},
    "batch": {"handler": "contexts:batch", "batch_size": 1, "concurrency": 1},
    "batch_in_thread": {"handler": "contexts:batch_in_thread", "batch_size": 1, "concurrency": 1},
}


def sections(**around: Any) -> dict[str, Any]:
    return {"handlers": {"import_path": [str(HANDLERS)], **around}}


def outputs(queue: Queue, published: list[int]) -> list[Any]:
    return [eventually(lambda each=each: queue.archived(each), 60).output for each in published]  # type: ignore[misc]


@pytest.mark.long
def test_an_attempt_sees_nothing_of_those_before_it(start: Start, queue: Queue) -> None:
    start(KINDS, concurrency=1, threads=1, sections=sections())

    published = {kind: [queue.publish(kind, payload=Jsonb(nth)) for nth in range(4)] for kind in KINDS}

    assert {kind: outputs(queue, each) for kind, each in published.items()} == {kind: [AT_START] * 4 for kind in KINDS}


def test_a_second_attempt_sees_nothing_of_the_first(start: Start, queue: Queue) -> None:
    queue.policy("job", max_attempts=2, backoff='{"kind": "none"}')
    start({"job": "contexts:fails"}, concurrency=1, sections=sections())

    assert outputs(queue, [queue.publish("job")]) == [AT_START]


def test_middleware_and_handler_share_the_context_of_their_attempt(start: Start, queue: Queue) -> None:
    middleware = ["contexts:around", "contexts:around_in_thread"]
    topics = {kind: KINDS[kind] for kind in ("waits", "thread", "process", "async_process")}
    start(topics, concurrency=1, threads=1, sections=sections(middleware=middleware))

    published = {kind: [queue.publish(kind, payload=Jsonb(nth)) for nth in range(3)] for kind in topics}

    expected = [{"before": "import", "handler saw": "middleware", "after": str(nth)} for nth in range(3)]
    assert {kind: outputs(queue, each) for kind, each in published.items()} == dict.fromkeys(topics, expected)


def test_a_hook_sees_the_context_of_its_attempt(start: Start, queue: Queue, journal: Journal) -> None:
    hooks = ["contexts:broken_hook", "contexts:hook"]
    daemon = start({"job": "contexts:fails"}, concurrency=1, sections=sections(on_failure=hooks))

    failed = [queue.publish("job", payload=Jsonb(nth)) for nth in range(3)]

    assert [journal.entry("hook", each)["left"] for each in failed] == ["0", "1", "2"]
    lines = [daemon.event("hook.failed", message_id=each) for each in failed]
    assert [(each["secret"], each["app"]) for each in lines] == [(0, "shop"), (1, "shop"), (2, "shop")]


def test_lines_outside_of_attempts_have_nothing_of_them(start: Start, queue: Queue) -> None:
    daemon = start({"job": "contexts:waits", "other": "contexts:in_thread"}, sections=sections())
    outputs(queue, [queue.publish(topic, payload=Jsonb(topic)) for topic in ("job", "other") * 3])

    daemon.stop()

    assert [line for line in daemon.logged() if "secret" in line] == []
