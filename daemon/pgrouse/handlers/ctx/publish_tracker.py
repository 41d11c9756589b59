"""Tracks the calls that a handler must await before it ends: publishes, completions, and steps."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar
from weakref import ref

from pgrouse.publishing.tracked_coroutine import TrackedCoroutine


class OpenCalls:
    """The calls of one context that have begun and have not ended."""

    def __init__(self) -> None:
        # The connection and the task of each call, by the future that its end resolves.
        self._calls: dict[asyncio.Future[None], tuple[Any, asyncio.Task[Any] | None]] = {}
        self._failures: Counter[int] = Counter()

    @contextmanager
    def add(self, conn: Any) -> Iterator[None]:
        """Mark a connection as in use by a call while this block runs, if it is not None."""
        if conn is None:
            yield
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls[over] = conn, asyncio.current_task()
        try:
            yield
        except BaseException:
            self._failures[id(conn)] += 1
            raise
        finally:
            del self._calls[over]
            over.set_result(None)

    def failures(self, conn: Any) -> int:
        """Return how many calls on a connection have failed."""
        return self._failures[id(conn)]

    def cancel(self, conn: Any) -> None:
        """Cancel the calls that use a connection."""
        for used, task in self._calls.values():
            if used is conn and task is not None:
                task.cancel()

    async def wait(self, conn: Any) -> None:
        """Wait until no call uses a connection."""
        while calls := [over for over, (used, _) in self._calls.items() if used is conn]:
            await asyncio.wait(calls)


T = TypeVar("T")
FAILED_IN_TASK = (
    "a ctx.publish() or ctx.step() in a task failed while the end of its transaction waited for it: "
    "await the task inside of the transaction to see its error"
)


class PublishTracker:
    """The calls that the handler of one message or batch, or one of its steps, must await before it ends.

    Args:
        outer: the tracker of the step's handler, or of the step around it: it must await the same calls.

    Attributes:
        calls: the calls that run on the connection of a transaction.
    """

    def __init__(self, outer: PublishTracker | None = None) -> None:
        self._outer = outer
        self.calls: OpenCalls = OpenCalls() if outer is None else outer.calls
        self._open: list[ref[TrackedCoroutine[Any]]] = []
        self._never_awaited: list[str] = []

    def track(self, coroutine: TrackedCoroutine[T]) -> TrackedCoroutine[T]:
        """Track a coroutine that the calling code created, also for the step in which that code runs."""
        innermost = self._innermost()
        coroutine.on_never_awaited = innermost.note_never_awaited
        innermost.add(ref(coroutine))
        return coroutine

    @contextmanager
    def step(self) -> Iterator[PublishTracker]:
        """Return a tracker of the calls that the calling code makes while this block, a step, runs."""
        before, tracker = _innermost.get(), PublishTracker(self._innermost())
        _innermost.set(tracker)
        try:
            yield tracker
        finally:
            # Do not reset with a token, which other contexts refuse: a coroutine that is closed early may end in any
            # context.
            _innermost.set(before)

    @asynccontextmanager
    async def transaction(self, conn: Any) -> AsyncIterator[None]:
        """End this block, which has a transaction, after all calls in it.

        Wait for them, or cancel them if the block fails.

        Raises:
            RuntimeError: a call failed that the block did not await.
        """
        try:
            yield
            await self._await_calls(conn)
        except BaseException:
            await self._let_tasks_begin()
            self.calls.cancel(conn)
            await self.calls.wait(conn)
            raise

    async def _await_calls(self, conn: Any) -> None:
        failures = self.calls.failures(conn)
        await self._let_tasks_begin()
        await self.calls.wait(conn)
        if self.calls.failures(conn) > failures:
            raise RuntimeError(FAILED_IN_TASK)

    async def _let_tasks_begin(self) -> None:
        """Let the tasks begin that were created for a call: they belong to the open transaction."""
        if not all(_is_over(each()) for each in self._open):
            await asyncio.sleep(0)

    def is_inside(self, tracker: PublishTracker) -> bool:
        """Return whether this is that tracker, or the tracker of one of its steps."""
        return self is tracker or (self._outer is not None and self._outer.is_inside(tracker))

    def add(self, coroutine: ref[TrackedCoroutine[Any]]) -> None:
        """Add a coroutine here, and to the outer trackers."""
        self._open = [each for each in self._open if not _is_over(each())]
        self._open.append(coroutine)
        if self._outer is not None:
            self._outer.add(coroutine)

    def note_never_awaited(self, text: str) -> None:
        """A coroutine was destroyed and never awaited; text: the error to report."""
        self._never_awaited.append(text)
        if self._outer is not None:
            self._outer.note_never_awaited(text)

    def _innermost(self) -> PublishTracker:
        found = _innermost.get()
        return found if found is not None and found.is_inside(self) else self

    def raise_if_not_awaited(self) -> None:
        """Check that everything was awaited.

        Raises:
            RuntimeError: a call was not awaited, and so was not made.
        """
        if (forgotten := self.find_forgotten()) is not None:
            raise RuntimeError(forgotten)

    def find_forgotten(self) -> str | None:
        """Return the error about the first call that was not awaited, and so was not made; None if there is none."""
        return next(iter([*self._never_awaited, *(each.forgotten for each in self._not_started())]), None)

    def _not_started(self) -> list[TrackedCoroutine[Any]]:
        """Return the coroutines that are not started and that no task is about to start."""
        waiting = [each for one in self._open if (each := one()) is not None and not each.is_started]
        tasks: set[object] = set()
        if waiting:
            with suppress(RuntimeError):  # no loop, and so no tasks
                tasks = {id(task.get_coro()) for task in asyncio.all_tasks()}
        return [each for each in waiting if id(each) not in tasks]


# The tracker of the innermost step in which the calling code runs.
_innermost: ContextVar[PublishTracker | None] = ContextVar("pgrouse_step_tracker", default=None)


def _is_over(coroutine: TrackedCoroutine[Any] | None) -> bool:
    return coroutine is None or coroutine.is_started


class Publisher(Protocol):
    """A context with which a handler publishes."""

    @property
    def _tracker(self) -> PublishTracker | None: ...


def tracker_of(context: Publisher) -> PublishTracker | None:
    """Return the calls that the handler with this context must await; None if there are none."""
    return context._tracker  # noqa: SLF001 - nothing for handlers


def check_awaited(tracker: PublishTracker | None, returned: object) -> object:
    """Return what a handler returned, or an error if it did not await what it has published."""
    if tracker is None or isinstance(returned, BaseException) or (forgotten := tracker.find_forgotten()) is None:
        return returned
    return RuntimeError(forgotten)
