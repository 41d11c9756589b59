"""What an attempt leaves in memory.

The exception that ended it is freed at once, with all that the frames of its traceback hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import HANDLERS, Daemon
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
AROUND = {
    "middleware": ["freeing:around", "freeing:around_in_thread"],
    "on_failure": ["freeing:hook", "freeing:failing_hook"],
}
SINGLE = ["at_once", "after_a_wait", "exits", "in_thread", "in_step", "in_step_of_thread",
    "in_transaction"]  # fmt: skip
HANDLERS_OF_KINDS: dict[str, Any] = {
    **{name: f"freeing:{name}" for name in SINGLE},
    "process": {"handler": "freeing:in_thread", "isolation": "process", "concurrency": 1},
    "async_process": {"handler": "freeing:after_a_wait", "isolation": "process", "concurrency": 1},
    "batch": {"handler": "freeing:batch", "batch_size": 2},
    "batch_in_thread": {"handler": "freeing:batch_in_thread", "batch_size": 2},
}


def sections(**around: Any) -> dict[str, Any]:
    return {"handlers": {"import_path": [str(HANDLERS)], **around}}


def still_there(queue: Queue, topic: str, failing: Any, asking: Any) -> Any:
    """Fail a message, and ask the next what is left of it."""
    failed = queue.publish(topic, payload=Jsonb(failing))
    eventually(lambda: queue.archived(failed), 60)
    return told(queue, topic, asking)


def told(queue: Queue, topic: str, asking: Any) -> Any:
    asked = queue.publish(topic, payload=Jsonb(asking))
    return eventually(lambda: queue.archived(asked), 60).output


@pytest.mark.long
@pytest.mark.parametrize("around", [{}, AROUND], ids=["bare", "with middleware and hooks"])
def test_what_a_handler_held_is_freed(start: Start, queue: Queue, around: dict[str, Any]) -> None:
    start(HANDLERS_OF_KINDS, sections=sections(**around))

    left = {kind: still_there(queue, kind, "fail", "tell") for kind in HANDLERS_OF_KINDS}

    assert left == {kind: {"held": 1, "still there": 0} for kind in HANDLERS_OF_KINDS}


@pytest.mark.long
def test_what_a_handler_held_that_ran_out_of_time_is_freed(start: Start, queue: Queue) -> None:
    queue.policy("job", timeout="1 s")
    start({"job": "freeing:until_its_timeout"}, sections=sections(**AROUND))

    assert still_there(queue, "job", "fail", "tell") == {"held": 1, "still there": 0}


@pytest.mark.parametrize("handler", ["freeing:checked", {"handler": "freeing:checked_batch", "batch_size": 2}])
def test_what_the_check_of_a_payload_held_is_freed(start: Start, queue: Queue, handler: Any) -> None:
    start({"job": handler}, sections=sections(**AROUND))

    assert still_there(queue, "job", {"text": "fail"}, {"text": "tell"}) == {"held": 1, "still there": 0}


@pytest.mark.parametrize("handler", ["freeing:after_a_wait", "freeing:in_thread"])
def test_what_a_handler_of_a_completed_message_held_is_freed(start: Start, queue: Queue, handler: str) -> None:
    daemon = start(
        {"job": {"handler": handler, "ack_policy": "ack_first"}, "tell": "freeing:at_once"}, sections=sections(**AROUND)
    )

    failed = queue.publish("job", payload=Jsonb("fail"))

    daemon.event("message.ended_after_completion", message_id=failed)
    eventually(lambda: told(queue, "tell", "tell") == {"held": 1, "still there": 0})
