"""Finds the handler that blocks the event loop, from another thread.

It reads the stack of the loop's thread, so nothing is recorded for it.
"""

from __future__ import annotations

import sys
import traceback
from types import FrameType
from typing import Any

from pgrouse.client.message import Message
from pgrouse.handlers.declaration.source_place import find_place
from pgrouse.handlers.handler import Handler
from pgrouse.worker.execution.attempts import Attempts
from pgrouse.worker.execution.run import Run

BEGINS, FINISHES = Attempts.begin.__code__, Attempts.finish.__code__


def describe_blocker(thread_id: int) -> dict[str, Any]:
    """Return the fields of a log event about what a thread runs now.

    They are `handler`, `topic` and `message_id` of an attempt, and `where` in the code.
    """
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 - its documented way
    if frame is None:
        return {}
    where = find_place(reversed(traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)))
    return {**_attempt(frame), **({"where": where} if where else {})}


def _attempt(frame: FrameType | None) -> dict[str, Any]:
    while frame is not None and frame.f_code not in (BEGINS, FINISHES):
        frame = frame.f_back
    if frame is None:  # a task that a handler has started
        return {}
    run: Run | None = frame.f_locals.get("run")
    handler: Handler = run.handler if run else frame.f_locals["handler"]
    messages: list[Message] = run.messages if run else frame.f_locals["messages"]
    return {"handler": handler.name, "topic": handler.topic, **({"message_id": messages[0].id} if messages else {})}
