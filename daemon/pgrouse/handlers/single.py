"""A call of a handler with one message."""

from __future__ import annotations

from typing import Any

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.handlers import outcome
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.context import AsyncContext, Context
from pgrouse.handlers.ctx.own_completion import NotCommitted
from pgrouse.handlers.ctx.publish_tracker import PublishTracker, check_awaited, tracker_of
from pgrouse.handlers.handler import Handler
from pgrouse.handlers.outcome import Ack
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.handlers.suspended import Suspended
from pgrouse.logging import events
from pgrouse.logging.event_logger import log


class Single:
    """A call of a handler with one message: see `HandlerCall`.

    Attributes:
        context: the context that the handler got, if it takes one.
    """

    # One object is made for each message: class attributes as defaults would cost more.
    __slots__ = ("context", "handler", "limit_s", "message", "messages", "runtime", "suspended", "was_called")

    suspended: Suspended

    def __init__(self, handler: Handler, messages: list[Message], runtime: HandlerRuntime) -> None:
        self.handler, self.messages, self.runtime = handler, messages, runtime
        self.message = messages[0]
        self.limit_s = self.message.timeout_s
        self.context: Context | AsyncContext | None = None
        self.was_called = False

    @property
    def committed(self) -> bool:
        """Whether the handler has completed the message."""
        return self.context is not None and self.context.completed

    @property
    def tracker(self) -> PublishTracker | None:
        """The calls that the handler must await."""
        return None if self.context is None else tracker_of(self.context)

    def call(self) -> Any:
        """Call the function with its arguments.

        Raises:
            Reject: the payload does not fit.
        """
        handler = self.handler
        if handler.arguments == 0:
            self.was_called = True
            return handler.function()
        if handler.arguments > 1:
            context = AsyncContext if handler.is_async else Context
            self.context = context(self.message, self.runtime, completed=self._is_completed_first)
        payload = handler.decode(self.message)
        self.was_called = True
        return handler.function(payload) if self.context is None else handler.function(payload, self.context)

    def complete(self, messages: list[Message]) -> None:
        """The message is completed in the database, by `ctx.complete()`."""
        if self.context is not None:
            self.context.completed = True
        self.runtime.completed(*messages)

    def start_completed(self, lost: list[int]) -> None:
        """The message was completed before the handler begins, unless it was lost."""
        if lost:
            self.messages = []

    def to_settlements(self, returned: object) -> list[Settlement]:
        """Return how the message ends; nothing if the handler has completed it."""
        context, rules = self.context, self.handler.rules
        if context is None:
            return [rules.to_settlement(self.message, returned)]
        returned = check_awaited(tracker_of(context), returned)
        if context.completing and not isinstance(returned, BaseException):
            # The message is settled only if it was not completed: see worker/completion_check.py.
            if returned is not None:
                self.log_after_completion("it returned an output: give it to ctx.complete()")
            returned = NotCommitted()
        if not context.completed or self._is_completed_first:
            return [rules.to_settlement(self.message, returned, context.action)]
        if isinstance(returned, BaseException):
            self.log_after_completion(self.runtime.encryption.describe_error(self.message, returned))
        elif returned is not None:
            self.log_after_completion("it returned an output: set ctx.output in the transaction")
        return []

    def completed(self) -> list[tuple[Message, BaseException | None]]:
        """Return the message with its output, if the handler has completed it."""
        if self.context is None or not self.context.completed or self._is_completed_first:
            return []
        return [(self.message, Ack(self.context.output))]

    def died(self, error: BaseException, reason: str) -> list[Settlement]:
        """Return how the message ends: another attempt, if any are left."""
        return [self.handler.rules.to_failure(self.message, error, reason)]

    def timed_out(self) -> list[Settlement]:
        """Return how the message ends after the timeout: as with an expired lock."""
        return [] if self.committed else [outcome.timed_out(self.message)]

    def released(self) -> list[Settlement]:
        """Return how the message ends: it is released."""
        return [] if self.committed else [Settlement(self.message, SettleKind.RELEASE, ran=True)]

    def log_keys(self) -> dict[str, Any]:
        """Return the fields of a log event about the message."""
        return {"message_id": self.message.id, "topic": self.message.topic}

    def log_after_completion(self, reason: str) -> None:
        """Log a result that no longer changes anything."""
        log.warning(events.MESSAGE_ENDED_AFTER_COMPLETION, **self.log_keys(), reason=reason)

    @property
    def _is_completed_first(self) -> bool:
        return self.handler.rules.policy is AckPolicy.ACK_FIRST
