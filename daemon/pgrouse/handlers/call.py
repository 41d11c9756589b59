"""A call of a handler: with one message, or with a batch. Both can be made, and end, in the same ways."""

from __future__ import annotations

from typing import Any, Protocol

from pgrouse.client.message import Message
from pgrouse.client.settlement import Settlement
from pgrouse.handlers.batch import Batch
from pgrouse.handlers.handler import Handler
from pgrouse.handlers.publish_tracker import PublishTracker
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.handlers.single import Single
from pgrouse.handlers.suspended import Suspended


class HandlerCall(Protocol):
    """One call of a handler, made at most once. The handler may be in a thread.

    Attributes:
        messages: what the handler is called for.
        was_called: whether the handler was called: not if no payload fits.
        suspended: the coroutine of an async handler that has begun and waits; not there before.
    """

    messages: list[Message]
    was_called: bool
    suspended: Suspended

    @property
    def limit_s(self) -> float | None:
        """How long the handler may run, in seconds; None = as long as it takes."""

    @property
    def committed(self) -> bool:
        """Whether the handler has completed the messages by `ctx.transaction()`."""

    @property
    def tracker(self) -> PublishTracker | None:
        """What the handler has published and has to await; None if nothing."""

    def call(self) -> Any:
        """Call the function; of an async one this returns the coroutine, or None if it was not called."""

    def complete(self, messages: list[Message]) -> None:
        """These messages are completed in the database, by `ctx.complete()`."""

    def start_completed(self, lost: list[int]) -> None:
        """The messages were completed before the handler begins (ack_first), except the lost ones, which the handler does not get."""

    def to_settlements(self, returned: object) -> list[Settlement]:
        """Return how the messages end, now that the handler has returned or raised this; without those that it has completed."""

    def completed(self) -> list[tuple[Message, BaseException | None]]:
        """Return the messages that the handler has completed by `ctx.transaction()`, with their outcomes."""

    def died(self, error: BaseException, reason: str) -> list[Settlement]:
        """Return how the messages end: the process of the handler died without a result."""

    def timed_out(self) -> list[Settlement]:
        """Return how the messages end: the handler ran longer than its timeout."""

    def released(self) -> list[Settlement]:
        """Return how the messages end: the handler was stopped from outside."""

    def log_keys(self) -> dict[str, Any]:
        """Return what a log event says of the messages."""

    def log_after_completion(self, reason: str) -> None:
        """Log what changes nothing any more."""


def to_call(handler: Handler, messages: list[Message], runtime: HandlerRuntime) -> HandlerCall:
    """Return a call of a handler with these messages: one, unless it is a batch handler."""
    return (Single if handler.batch_options is None else Batch)(handler, messages, runtime)
