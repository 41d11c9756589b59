"""What is to be awaited, and says in the log that nobody ever did: what it would have done was not done."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

import structlog

from pgrouse import events

if TYPE_CHECKING:
    from pgrouse.handlers.batch import BatchContext
    from pgrouse.handlers.context import Context

T = TypeVar("T")
MEND = "write `await` before it: nothing was published"


class Pending(Coroutine[Any, Any, T]):
    """A coroutine that knows whether anybody has begun to await it.

    Args:
        course: the coroutine.
        topic: of what it would publish; None = of several.

    Attributes:
        is_begun: whether somebody awaits it, or has closed it.
        on_forgotten: called with the topic when it goes and nobody had.
    """

    def __init__(self, course: Coroutine[Any, Any, T], topic: str | None) -> None:
        self._course, self.topic = course, topic
        self.is_begun = False
        self.on_forgotten: Callable[[str | None], None] | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        self.is_begun = True
        return self._course.__await__()

    def send(self, value: Any) -> Any:
        """Go on, as a task does."""
        self.is_begun = True
        return self._course.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error inside, as a task that is cancelled does."""
        self.is_begun = True
        return self._course.throw(*error)

    def close(self) -> None:
        """Give it up."""
        self.is_begun = True
        self._course.close()

    def __del__(self) -> None:
        if self.is_begun or sys.is_finalizing():
            return
        if self.on_forgotten is not None:
            self.on_forgotten(self.topic)
        # Nothing may be raised here, and whoever logs may do anything.
        with suppress(Exception):
            _tell(self.topic)


def _tell(topic: str | None) -> None:
    """Log it as this process logs: a library must not write where its caller has not asked it to."""
    if structlog.is_configured():
        structlog.get_logger().error(events.PUBLISH_NEVER_AWAITED, topic=topic, mend=MEND)
    else:
        logging.getLogger("pgrouse").error("%s topic=%s: %s", events.PUBLISH_NEVER_AWAITED, topic, MEND)


class Promised:
    """What a handler has called and has to await before it ends."""

    def __init__(self) -> None:
        self._open: list[ref[Pending[Any]]] = []
        self._forgotten: list[str | None] = []

    def watch(self, pending: Pending[T]) -> Pending[T]:
        """Look after one."""
        pending.on_forgotten = self._forgotten.append
        self._open = [each for each in self._open if not _is_over(each())]
        self._open.append(ref(pending))
        return pending

    def refuse_forgotten(self) -> None:
        """Make sure that nothing was forgotten.

        Raises:
            RuntimeError: something was, and it was not done.
        """
        topics = [*self._forgotten, *(each.topic for each in self._waiting())]
        if topics:
            raise RuntimeError(f"ctx.publish({topics[0]!r}, ...) was not awaited, and published nothing: await it")

    def _waiting(self) -> list[Pending[Any]]:
        """Return what nobody has begun and no task is about to."""
        waiting = [each for one in self._open if (each := one()) is not None and not each.is_begun]
        tasks: set[object] = set()
        if waiting:
            with suppress(RuntimeError):  # no loop, and so no tasks
                tasks = {id(task.get_coro()) for task in asyncio.all_tasks()}
        return [each for each in waiting if id(each) not in tasks]


def _is_over(pending: Pending[Any] | None) -> bool:
    return pending is None or pending.is_begun


def promised_by(context: Context | BatchContext | None) -> Promised | None:
    """Return what the handler with this context has published and has to await; None if nothing."""
    return None if context is None else context._promised  # noqa: SLF001 - nothing for handlers


def checked(promised: Promised | None, said: object) -> object:
    """Return what a handler said; an error instead of a success if it forgot to await what it has promised to."""
    if promised is None or isinstance(said, BaseException):
        return said
    try:
        promised.refuse_forgotten()
    except RuntimeError as error:
        return error.with_traceback(None)
    return said
