"""A course of work that is written once, as a coroutine, for connections that are awaited and for those that block."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def finish(course: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits to its end, without an event loop."""
    try:
        course.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    course.close()
    raise RuntimeError("a blocking connection has waited for an event loop")
