"""A coroutine that logs an error if it is never awaited: what it would have published was not published."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from pgrouse import events

T = TypeVar("T")
FIX = "write `await` before it: nothing was published"


class TrackedCoroutine(Coroutine[Any, Any, T]):
    """A coroutine that knows whether anybody has begun to await it.

    Args:
        coroutine: what is awaited.
        topic: the topic that it would publish to; None = several.

    Attributes:
        is_started: whether it is awaited, or was closed.
        on_never_awaited: called with the topic when it is destroyed and was never awaited.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], topic: str | None) -> None:
        self._coroutine, self.topic = coroutine, topic
        self.is_started = False
        self.on_never_awaited: Callable[[str | None], None] | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        self.is_started = True
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Go on, as a task does."""
        self.is_started = True
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error inside, as a task that is cancelled does."""
        self.is_started = True
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Give it up."""
        self.is_started = True
        self._coroutine.close()

    def __del__(self) -> None:
        if self.is_started or sys.is_finalizing():
            return
        if self.on_never_awaited is not None:
            self.on_never_awaited(self.topic)
        # A destructor must not raise, and a logger of the application may do anything.
        with suppress(Exception):
            _log_never_awaited(self.topic)


def _log_never_awaited(topic: str | None) -> None:
    """Log it as this process logs: a library does not write where its caller has not asked it to."""
    if structlog.is_configured():
        structlog.get_logger().error(events.PUBLISH_NEVER_AWAITED, topic=topic, fix=FIX)
    else:
        logging.getLogger("pgrouse").error("%s topic=%s: %s", events.PUBLISH_NEVER_AWAITED, topic, FIX)
