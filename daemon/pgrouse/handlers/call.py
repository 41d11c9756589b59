"""A call of a handler: with one message, or with a batch. Both are made, and end, in the same ways."""

from __future__ import annotations

from typing import Any, Protocol

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import Settlement
from pgrouse.handlers.batch.batch import Batch
from pgrouse.handlers.ctx.publish_tracker import PublishTracker
from pgrouse.handlers.handler import Handler
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.handlers.single import Single
from pgrouse.handlers.suspended import Suspended


class HandlerCall(Protocol):
    """One call of a handler, made at most once. The handler may be in a thread.

    Attributes:
        messages: the messages of the call.
        was_called: whether the handler was called; it is not called if no payload is valid.
        suspended: the coroutine of an async handler that has begun and waits; not set before.
    """

    messages: list[Message]
    was_called: bool
    suspended: Suspended

    @property
    def limit_s(self) -> float | None:
        """How long the handler may run, in seconds; None = no limit."""

    @property
    def committed(self) -> bool:
        """Whether the handler has completed the messages by `ctx.transaction()`."""

    @property
    def tracker(self) -> PublishTracker | None:
        """The calls that the handler must await; None if there are none."""

    def call(self) -> Any:
        """Call the function. For an async function this returns the coroutine, or None if it was not called."""

    def complete(self, messages: list[Message]) -> None:
        """`ctx.complete()` has completed these messages in the database."""

    def start_completed(self, lost: list[int]) -> None:
        """The messages were completed before the handler begins (ack_first), except the lost ones.

        The handler does not get lost messages.
        """

    def to_settlements(self, returned: object) -> list[Settlement]:
        """Return how the messages end, after the handler returned or raised this.

        Messages that it has completed are left out.
        """

    def completed(self) -> list[tuple[Message, BaseException | None]]:
        """Return the messages that the handler has completed by `ctx.transaction()`, with their outcomes."""

    def died(self, error: BaseException, reason: str) -> list[Settlement]:
        """Return how the messages end after the handler's process died without a result."""

    def timed_out(self) -> list[Settlement]:
        """Return how the messages end after the handler ran longer than its timeout."""

    def released(self) -> list[Settlement]:
        """Return how the messages end after the handler was stopped from outside."""

    def log_keys(self) -> dict[str, Any]:
        """Return the fields of a log event about the messages."""

    def log_after_completion(self, reason: str) -> None:
        """Log a result that no longer changes anything."""


def to_call(handler: Handler, messages: list[Message], runtime: HandlerRuntime) -> HandlerCall:
    """Return a call of a handler with these messages: one message, unless it is a batch handler."""
    return (Single if handler.batch_options is None else Batch)(handler, messages, runtime)
