"""The resources that handlers share as `ctx.resources`.

The user's `lifespan` opens them before the first handler and closes them after the last.

A lifespan is a function without arguments that returns a context manager, async or not. The same task (or thread)
enters and leaves it, as task groups and cancel scopes require.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from typing import Any

from pgrouse.errors import LifespanFailed
from pgrouse.handlers.declaration.source_place import error_place
from pgrouse.logging import events
from pgrouse.logging.event_logger import log

Manager = AbstractAsyncContextManager[Any] | AbstractContextManager[Any]
LifespanFunction = Callable[[], Manager]
# How long a cancelled lifespan may take to end.
CANCEL_S = 2.0
# After the time for its start, this much later the process ends if the lifespan blocks the event loop, because no
# timeout can stop it then.
STUCK_S = 5.0


class Lifespan:
    """One run of a lifespan.

    Args:
        name: the name that errors use.
        function: returns the context manager.
        on_failure: called on the event loop with the error if the lifespan ends while it is in use.
        on_stuck: called in a separate thread if the start blocks the event loop.
    """

    def __init__(
        self,
        name: str,
        function: LifespanFunction,
        on_failure: Callable[[BaseException], None] | None = None,
        on_stuck: Callable[[], None] | None = None,
    ) -> None:
        self.name, self._function = name, function
        self._on_failure, self._on_stuck = on_failure, on_stuck
        self._closing = asyncio.Event()
        self._is_ending = False
        self._opened: asyncio.Future[Any]
        self._task: asyncio.Task[None]

    async def start(self, timeout_s: float) -> Any:
        """Enter the context manager, and return what it yields.

        Raises:
            LifespanFailed: it raised an exception, or took longer than this many seconds.
        """
        guard = threading.Timer(timeout_s + STUCK_S, self._on_stuck) if self._on_stuck else None
        if guard is not None:
            guard.daemon = True
            guard.start()
        try:
            return await self._start(timeout_s)
        finally:
            if guard is not None:
                guard.cancel()

    async def _start(self, timeout_s: float) -> Any:
        self._opened = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(), name="lifespan")
        try:
            await asyncio.wait([self._task, self._opened], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if self._opened.done():
            self._task.add_done_callback(self._on_done)
            return self._opened.result()
        if self._task.done():
            raise self._failed(_error_of(self._task))
        self._task.cancel()
        raise LifespanFailed(f"{self.name} did not start within {timeout_s:g} s (handlers.startup_timeout)")

    async def end(self, timeout_s: float) -> None:
        """Leave the context manager. Log its exception, or that it took longer than this many seconds."""
        if self._task.done():  # it has failed, and the failure was reported
            return
        self._is_ending = True
        self._closing.set()
        await asyncio.wait([self._task], timeout=timeout_s)
        if not self._task.done():
            log.error(events.LIFESPAN_TIMED_OUT, lifespan=self.name, timeout_s=round(timeout_s, 1))
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CANCEL_S)
        elif (error := self._task.exception()) is not None:
            log.error(events.LIFESPAN_FAILED, lifespan=self.name, exc_info=error)

    async def _hold(self) -> None:
        manager: Manager | object = self._function()
        if isinstance(manager, AbstractAsyncContextManager):
            async with manager as resources:
                _resolve(self._opened, resources)
                await self._closing.wait()
        elif isinstance(manager, AbstractContextManager):
            await self._hold_in_thread(manager)
        else:
            raise TypeError(
                f"it returned a {type(manager).__name__}, which is no context manager: "
                "decorate it with @asynccontextmanager"
            )

    async def _hold_in_thread(self, manager: AbstractContextManager[Any]) -> None:
        """Hold a context manager that may block.

        The thread is a daemon thread: if it hangs, the process can still end.
        """
        loop, leave = asyncio.get_running_loop(), threading.Event()
        ended: asyncio.Future[BaseException | None] = loop.create_future()

        def report(future: asyncio.Future[Any], value: object) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_resolve, future, value)

        def run() -> None:
            try:
                with manager as resources:
                    report(self._opened, resources)
                    leave.wait()
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
                report(ended, error)
            else:
                report(ended, None)

        threading.Thread(target=run, name="lifespan", daemon=True).start()
        closing: asyncio.Future[Any] = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([closing, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leave.set()
            closing.cancel()
        if (error := await ended) is not None:
            raise error

    def _on_done(self, task: asyncio.Task[None]) -> None:
        """The lifespan has ended: it was told to, or something in it failed, such as a task of its task group."""
        if not self._is_ending and self._on_failure is not None:
            self._on_failure(_error_of(task))

    def _failed(self, error: BaseException) -> LifespanFailed:
        place = error_place(error)
        failed = LifespanFailed(f"{self.name} failed: {type(error).__name__}: {error}{f' ({place})' if place else ''}")
        failed.__cause__ = error
        return failed


def _error_of(task: asyncio.Task[None]) -> BaseException:
    if task.cancelled():
        return asyncio.CancelledError("it was cancelled")
    return task.exception() or RuntimeError("it ended by itself")


def _resolve(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():  # nothing waits for it now
        future.set_result(value)
