"""A coroutine that logs an error if it is never awaited, because then its work was not done."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

from pgrouse.logging import events
from pgrouse.logging.event_logger import log

T = TypeVar("T")
U = TypeVar("U")


class AwaitedCall(NamedTuple):
    """The texts about a coroutine's work.

    Attributes:
        event: logged when it is never awaited.
        undone: what it did not do, in the error that its handler gets.
        nothing: the same, in the log.
    """

    event: str
    undone: str
    nothing: str


ACTIONS = {
    "publish": AwaitedCall(events.PUBLISH_NEVER_AWAITED, "published nothing", "nothing was published"),
    "complete": AwaitedCall(events.COMPLETE_NEVER_AWAITED, "completed nothing", "nothing was completed"),
    "step": AwaitedCall(events.STEP_NEVER_AWAITED, "did nothing", "the step was not done"),
    "wait_for_event": AwaitedCall(events.EVENT_NEVER_AWAITED, "waited for nothing", "the handler did not wait"),
}


class TrackedCoroutine(Coroutine[Any, Any, T]):
    """A coroutine that knows whether an await of it has begun.

    Args:
        coroutine: the coroutine to await.
        topic: the topic that it would publish to, or the topic of its message; None = several.
        action: one of ACTIONS.

    Attributes:
        is_started: whether it is awaited, or was closed.
        on_never_awaited: called with the text `forgotten` when it is destroyed and was never awaited.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], topic: str | None, action: str = "publish") -> None:
        self._coroutine: Coroutine[Any, Any, Any] = coroutine
        self._innermost, self.topic, self.action = coroutine, topic, action
        self.is_started = False
        self.on_never_awaited: Callable[[str], None] | None = None

    @property
    def forgotten(self) -> str:
        """The error text for a coroutine that is not awaited."""
        shown = f"{self.topic!r}, ..." if self.action == "publish" else "..."
        return f"ctx.{self.action}({shown}) was not awaited, and {ACTIONS[self.action].undone}: await it"

    def then(self, change: Callable[[T], U]) -> TrackedCoroutine[U]:
        """Let it return what `change` makes of its result; return it. It is tracked as before."""
        self._coroutine = _changed_result(self._coroutine, change)
        return cast("TrackedCoroutine[U]", self)

    def __await__(self) -> Generator[Any, Any, T]:
        self.is_started = True
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Continue, as a task does."""
        self.is_started = True
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error inside, as a cancelled task does."""
        self.is_started = True
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Close it without running it further."""
        self.is_started = True
        self._close()

    def _close(self) -> None:
        self._coroutine.close()
        self._innermost.close()  # a coroutine around it that has not begun does not close it

    def __del__(self) -> None:
        if self.is_started or sys.is_finalizing():
            return
        if self.on_never_awaited is not None:
            self.on_never_awaited(self.forgotten)
        # A destructor must not raise, and a logger of the application may do anything.
        with suppress(Exception):
            # Otherwise the interpreter would warn of the same, without a level and a place.
            self._close()
            _log_never_awaited(ACTIONS[self.action], self.topic)


async def _changed_result(coroutine: Coroutine[Any, Any, T], change: Callable[[T], U]) -> U:
    """Return what `change` makes of the result of a coroutine."""
    return change(await coroutine)


def _log_never_awaited(action: AwaitedCall, topic: str | None) -> None:
    """Log it the way this process logs: a library must not write where its caller did not ask for it."""
    fix = f"write `await` before it: {action.nothing}"
    structlog = sys.modules.get("structlog")  # if it is configured, it is imported
    if structlog is not None and structlog.is_configured():
        log.error(action.event, topic=topic, fix=fix)
    else:
        logging.getLogger("pgrouse").error("%s topic=%s: %s", action.event, topic, fix)
