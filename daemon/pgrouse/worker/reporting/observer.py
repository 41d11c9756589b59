"""What a daemon reports of its work to telemetry, and the observer that records nothing."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol

import psycopg

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import Settlement


class AttemptSpan(Protocol):
    """One attempt, or the attempt of a batch; it is the current span of its handler."""

    def end(self, settlements: Sequence[Settlement], *, lost: bool) -> None:
        """The attempt is over: its messages were settled in this way, or lost."""


class TurnSpan(Protocol):
    """The block in which a claim loop settles and claims.

    An exception means that both failed, or that their result is unknown.
    """

    def __enter__(self) -> TurnSpan: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

    def record_claimed(self, messages: Sequence[Message]) -> None:
        """Record what was claimed."""


class Observer(Protocol):
    """Sees attempts, claims and settles."""

    def attempt(self, messages: Sequence[Message], *, is_batch: bool) -> AttemptSpan:
        """A handler gets these messages, all of one topic; the caller calls `end` in the same task."""

    def turn(self, conn: psycopg.AsyncConnection[Any], settlements: Sequence[Settlement], *, claims: bool) -> TurnSpan:
        """Return the block of one turn that settles these attempts, and claims if `claims`."""

    def shutdown(self) -> None:
        """Export what is left; blocks."""


class NoSpan:
    """A span that records nothing."""

    __slots__ = ()

    def __enter__(self) -> NoSpan:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def end(self, settlements: Sequence[Settlement], *, lost: bool) -> None:
        """Record nothing."""

    def record_claimed(self, messages: Sequence[Message]) -> None:
        """Record nothing."""


NO_SPAN = NoSpan()


class NoObserver:
    """The observer of a daemon without telemetry."""

    def attempt(self, messages: Sequence[Message], *, is_batch: bool) -> NoSpan:
        """Record nothing."""
        return NO_SPAN

    def turn(self, conn: psycopg.AsyncConnection[Any], settlements: Sequence[Settlement], *, claims: bool) -> NoSpan:
        """Record nothing."""
        return NO_SPAN

    def shutdown(self) -> None:
        """Do nothing."""


NO_OBSERVER = NoObserver()
