"""What a handler has to await before it ends: what it publishes, completes, and its steps."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Protocol, TypeVar
from weakref import ref

from pgrouse.publishing.tracked_coroutine import TrackedCoroutine

T = TypeVar("T")


class PublishTracker:
    """What the handler of one message or batch has to await before it ends."""

    def __init__(self) -> None:
        self._open: list[ref[TrackedCoroutine[Any]]] = []
        self._never_awaited: list[str] = []

    def track(self, coroutine: TrackedCoroutine[T]) -> TrackedCoroutine[T]:
        """Track a coroutine."""
        coroutine.on_never_awaited = self._never_awaited.append
        self._open = [each for each in self._open if not _is_over(each())]
        self._open.append(ref(coroutine))
        return coroutine

    def raise_if_not_awaited(self) -> None:
        """Make sure that everything was awaited.

        Raises:
            RuntimeError: something was not, and was not done.
        """
        if (forgotten := self.find_forgotten()) is not None:
            raise RuntimeError(forgotten)

    def find_forgotten(self) -> str | None:
        """Return what there is to say of the first that was not awaited, and was not done; None if there is none."""
        return next(iter([*self._never_awaited, *(each.forgotten for each in self._not_started())]), None)

    def _not_started(self) -> list[TrackedCoroutine[Any]]:
        """Return those that are not started and that no task is about to start."""
        waiting = [each for one in self._open if (each := one()) is not None and not each.is_started]
        tasks: set[object] = set()
        if waiting:
            with suppress(RuntimeError):  # no loop, and so no tasks
                tasks = {id(task.get_coro()) for task in asyncio.all_tasks()}
        return [each for each in waiting if id(each) not in tasks]


def _is_over(coroutine: TrackedCoroutine[Any] | None) -> bool:
    return coroutine is None or coroutine.is_started


class Publisher(Protocol):
    """A context by which a handler publishes."""

    @property
    def _tracker(self) -> PublishTracker | None: ...


def tracker_of(context: Publisher) -> PublishTracker | None:
    """Return what the handler with this context has published and has to await; None if nothing."""
    return context._tracker  # noqa: SLF001 - nothing for handlers


def check_awaited(tracker: PublishTracker | None, returned: object) -> object:
    """Return what a handler returned; an error instead if it did not await what it has published."""
    if tracker is None or isinstance(returned, BaseException) or (forgotten := tracker.find_forgotten()) is None:
        return returned
    return RuntimeError(forgotten)
