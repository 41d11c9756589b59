"""The lifespan of a child process: each child opens its own, on an event loop that its async handlers also use.

The loop runs only while a handler does. The lifespan ends when the child is replaced or the daemon stops. If a child is
killed, because of a timeout or a lost message, its lifespan does not end.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pgrouse.errors import LifespanFailed
from pgrouse.handlers.declaration.lifespan import Lifespan, LifespanFunction
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.worker.child.child_server import END

# A child is killed three seconds after it was asked to end.
END_S = 2.0


class ChildLifespan:
    """The lifespan and the event loop of this process.

    Args:
        name: the name that errors use.
        function: returns the context manager.
        timeout_s: how long its start may take.
    """

    def __init__(self, name: str, function: LifespanFunction, timeout_s: float) -> None:
        self._name, self._function, self._timeout_s = name, function, timeout_s
        self._runner = asyncio.Runner()
        self._lifespan: Lifespan | None = None
        self._resources: Any = None
        self._is_busy = self._is_ending = False
        signal.signal(END, self._on_end)

    def try_start(self) -> None:
        """Start it before the first message.

        If that fails, the next message tries again, and its attempt fails if that fails too.
        """
        with suppress(LifespanFailed):
            self.start()

    def start(self) -> Any:
        """Return the resources; open them first if they are not open.

        Raises:
            LifespanFailed: they cannot be opened.
        """
        if self._lifespan is None:
            lifespan = Lifespan(self._name, self._function, self._on_failure, _exit)
            self._resources = self.run(lifespan.start(self._timeout_s))
            self._lifespan = lifespan
        return self._resources

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop to its end, in a copy of the current context."""
        return self._runner.run(coroutine, context=contextvars.copy_context())

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Allow the process to be killed at any time while this block runs: a handler runs."""
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    def _on_failure(self, error: BaseException) -> None:
        log.error(events.LIFESPAN_FAILED, lifespan=self._name, exc_info=error)
        self._lifespan = None

    def _on_end(self, *_: object) -> None:
        """End this process.

        End at once if a handler runs, because the handler is to be killed. The process may be ending already, for the
        same reason.
        """
        if self._is_ending:
            return
        if not self._is_busy:
            self.end()
        _exit()

    def end(self) -> None:
        """Close the resources, and open none again."""
        self._is_ending = True
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            self.run(lifespan.end(END_S))


def _exit() -> None:
    os._exit(1)
