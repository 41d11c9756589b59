"""Batch handlers: a handler that takes a list of messages, and may set an outcome for each.

The outcomes of its messages are settled together when it ends; `ctx.transaction()` completes them earlier, together
with the handler's SQL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.config.duration import AnyDuration
from pgrouse.errors import LockLost
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.batch.batch_context import AsyncBatchContext, BatchContext
from pgrouse.handlers.ctx.message_view import MessageView
from pgrouse.handlers.ctx.own_completion import NotCommitted
from pgrouse.handlers.ctx.publish_tracker import PublishTracker, check_awaited
from pgrouse.handlers.handler import Handler
from pgrouse.handlers.outcome import UNCHANGED, Ack, Defer, Fail, Outcome, Reject, Retry
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.handlers.suspended import Suspended
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.values.error_line import ERROR_BYTES

P = TypeVar("P")
MAX_IDS_SHOWN = 10  # in an error


class Item(MessageView, Generic[P]):
    """One message of a batch: `def work(items: list[Item[Order]])`.

    The first outcome of a message counts. If a message has none, the result of the handler counts: what it returns or
    raises.

    Attributes:
        payload: the payload, validated as the annotation says.
        completed: whether `ctx.transaction()` has completed it.
    """

    __slots__ = ("_batch", "completed", "payload")

    def __init__(self, message: Message, batch: Batch) -> None:
        self._message, self._batch = message, batch
        self.payload: P
        self.completed = False

    @property
    def settled(self) -> bool:
        """Whether it has an outcome, or `ctx.transaction()` has completed it."""
        return self.completed or self.id in self._batch.outcomes

    @property
    def lost(self) -> bool:
        """Whether this worker no longer holds the message: it was cancelled, or its lock expired.

        Outcomes for it change nothing.
        """
        return not self.completed and not self._batch.runtime.holds(self._message)

    def complete(self, output: Any = None) -> bool:
        """It succeeded. Return whether this counts: it had no outcome before, and the batch is not over."""
        return self._batch.record_outcome(self, Ack(output))

    def reject(self, reason: str) -> bool:
        """It is invalid: archived as `rejected`, without another attempt. Returns whether this counts."""
        return self._batch.record_outcome(self, Reject(reason))

    def fail(self, reason: str) -> bool:
        """It failed for good. Returns whether this counts."""
        return self._batch.record_outcome(self, Fail(reason))

    def retry(
        self,
        after: AnyDuration | None = None,
        *,
        state: Any = UNCHANGED,
        reason: str = "the handler asked for a retry",
    ) -> bool:
        """It failed; try it again while attempts are left.

        The arguments are those of `Retry`. Return whether this counts.
        """
        return self._batch.record_outcome(self, Retry(after, state=state, reason=reason))

    def defer(self, after: AnyDuration | None = None, *, until: datetime | None = None, state: Any = UNCHANGED) -> bool:
        """Nothing failed; it comes back later. The arguments are those of `Defer`. Return whether this counts."""
        return self._batch.record_outcome(self, Defer(after, until=until, state=state))


class Batch:
    """One run of a batch handler: its messages and their outcomes. The handler may be in a thread.

    Args:
        messages: all of one topic, at least one.
        runtime: where the handler runs.

    Attributes:
        items: the messages as the handler sees them, in the same order.
        valid_items: the items whose payload is valid; the handler gets these.
        outcomes: the outcomes of single messages, by their ids.
        limit_s: how long it may run: the shortest timeout of its messages; None = no limit.
        in_transaction: whether a transaction is open.
        committed: whether a transaction has completed the batch.
        completing_own: the ids of the messages that `ctx.complete()` completes, if its transaction is committed.
        was_called: whether the handler was called; it is not called if no payload is valid.
        tracker: the calls that the handler must await.
        was_rolled_back: whether a transaction was rolled back because messages had been lost.
        suspended: the coroutine of an async handler that has begun and waits; not set before.
    """

    suspended: Suspended

    def __init__(self, handler: Handler, messages: list[Message], runtime: HandlerRuntime) -> None:
        self.handler, self.messages, self.runtime = handler, messages, runtime
        self.items: list[Item[Any]] = [Item(message, self) for message in messages]
        self.valid_items: list[Item[Any]] = []
        self.outcomes: dict[int, BaseException] = {}
        self.limit_s = min((m.timeout_s for m in messages if m.timeout_s is not None), default=None)
        self.in_transaction = False
        self.committed = False
        self.completing_own: frozenset[int] = frozenset()
        self.was_called = False
        self.was_rolled_back = False
        self.tracker = PublishTracker()
        self._over = False
        self._lock = threading.Lock()

    def call(self) -> Any:
        """Call the function with the valid payloads; for an async function this returns the coroutine.

        If none is valid, nothing is called.
        """
        self.valid_items = [
            item for message, item in zip(self.messages, self.items, strict=True) if self._validates(message, item)
        ]
        self.was_called = bool(self.valid_items)
        if not self.was_called:
            return None
        batch_options = self.handler.batch_options
        as_items = batch_options is not None and batch_options.as_items
        listed = list(self.valid_items) if as_items else [item.payload for item in self.valid_items]
        if self.handler.arguments == 1:
            return self.handler.function(listed)
        context = AsyncBatchContext if self.handler.is_async else BatchContext
        return self.handler.function(listed, context(self))

    def record_outcome(self, item: Item[Any], result: BaseException) -> bool:
        """Record the outcome of one message; return whether it counts."""
        with self._lock:
            if self._over or item.settled or item.id in self.completing_own:
                return False
            self.outcomes[item.id] = result
            return True

    def completing(self) -> list[Message]:
        """Return the messages that a transaction completes: those without another outcome."""
        return [each for each in self.messages if isinstance(self.outcomes.get(each.id), Ack | None)]

    def begin_completing(self) -> None:
        """`ctx.complete()` is about to complete the messages without another outcome."""
        with self._lock:
            self.completing_own = frozenset(message.id for message in self.completing())

    def complete(self, messages: list[Message]) -> None:
        """These messages are completed in the database."""
        ids = {message.id for message in messages}
        with self._lock:
            for item in self.items:
                item.completed = item.completed or item.id in ids
            self.committed = True
        self.runtime.completed(*messages)

    def start_completed(self, lost: list[int]) -> None:
        """All messages were completed before the handler begins (ack_first), except the lost ones.

        The handler does not get lost messages.
        """
        self.messages = [message for message in self.messages if message.id not in lost]
        self.items = [item for item in self.items if item.id not in lost]
        self.complete(self.messages)

    def leave_transaction(self) -> None:
        """The transaction has ended. If it was rolled back, undo the effects of the `complete()` calls in it."""
        with self._lock:
            self.in_transaction = False
            if not self.committed:
                self.outcomes = {each: result for each, result in self.outcomes.items() if not isinstance(result, Ack)}

    def to_settlements(self, result: object) -> list[Settlement]:
        """Return how each message ended, after the handler returned or raised this.

        Messages that a transaction completed are left out.
        """
        result = check_awaited(self.tracker, result)
        if self.committed and (reason := self._late_outcome(result)):
            self.log_after_completion(reason)
        if isinstance(result, list | tuple) and len(result) == len(self.valid_items):
            each = {item.id: one for item, one in zip(self.valid_items, result, strict=True)}
            each |= {message_id: NotCommitted() for message_id in self.completing_own}
            return self._close(lambda message: self.handler.rules.to_settlement(message, each.get(message.id)))
        return self._close(self._default_outcome(result))

    def completed(self) -> list[tuple[Message, BaseException | None]]:
        """Return the messages that are completed, with their outcomes."""
        pairs = zip(self.messages, self.items, strict=True)
        return [(message, self.outcomes.get(message.id)) for message, item in pairs if item.completed]

    def died(self, error: BaseException, reason: str) -> list[Settlement]:
        """Return how each message ended after the handler's process died without a result."""
        hinted = self._with_batch_hint(reason)
        if self.committed:
            self.log_after_completion(hinted)
        return self._close(lambda message: self.handler.rules.to_failure(message, error, hinted))

    def timed_out(self) -> list[Settlement]:
        """Return how each message ended after the timeout: messages without an outcome end as with an expired lock."""
        error = self._with_batch_hint(f"lock_expired: the handler ran longer than its timeout of {self.limit_s} s")
        if self.committed:
            self.log_after_completion(error)
        return self._close(lambda message: Settlement(message, SettleKind.EXPIRE, error=error))

    def released(self) -> list[Settlement]:
        """Return how each message ended after a stop: messages without an outcome are released."""
        return self._close(_release)

    def _validates(self, message: Message, item: Item[Any]) -> bool:
        try:
            item.payload = self.handler.decode(message)
        except Exception as error:  # noqa: BLE001 - a validator may raise anything, about this message alone
            if not self.record_outcome(item, error):
                self.log_after_completion(self.runtime.encryption.describe_error(message, error))
            return False
        return True

    def _default_outcome(self, result: object) -> Callable[[Message], Settlement]:
        """Return a function that tells how messages without their own outcome end."""
        rules = self.handler.rules
        match result:
            case None if self.completing_own:
                return self._raised(NotCommitted())
            case None | Outcome():
                return lambda message: rules.to_settlement(message, result)
            case LockLost() if self.was_rolled_back:
                # The messages that were not lost are not at fault.
                return _release
            case BaseException():
                return self._raised(result)
        found = f"a list of {len(result)}" if isinstance(result, list | tuple) else f"a {type(result).__name__}"
        wanted = "return None, or a list with one outcome for each"
        return self._raised(TypeError(f"the handler returned {found} for {len(self.valid_items)} messages: {wanted}"))

    def _raised(self, error: BaseException) -> Callable[[Message], Settlement]:
        if self.handler.rules.strategy is not None:
            return lambda message: self._failed(message, error)
        # Describe it once: a traceback takes time.
        failed = self._failed(self.messages[0], error)
        return lambda message: replace(failed, message=message)

    def _failed(self, message: Message, error: BaseException) -> Settlement:
        ended = self.handler.rules.to_settlement(message, error)
        return ended if ended.error is None else replace(ended, error=self._with_batch_hint(ended.error))

    def _close(self, rest: Callable[[Message], Settlement]) -> list[Settlement]:
        """Return how each message ended; later outcomes do not count."""
        with self._lock:
            self._over = True
            # A handler that is stopped in its transaction has completed nothing.
            is_over = not self.in_transaction
            result = {
                each: it
                for each, it in self.outcomes.items()
                if not isinstance(it, Ack) or (is_over and each not in self.completing_own)
            }
            open_ = [m for m, item in zip(self.messages, self.items, strict=True) if not item.completed]
            # The traceback of a raised outcome has a frame with this batch: they would keep each other alive.
            self.outcomes = {each: it for each, it in self.outcomes.items() if it.__traceback__ is None}
        return [self._ended(m, result[m.id]) if m.id in result else rest(m) for m in open_]

    def _ended(self, message: Message, result: BaseException) -> Settlement:
        rules = self.handler.rules
        return (
            rules.to_settlement(message, None, result)
            if isinstance(result, Outcome)
            else rules.to_settlement(message, result)
        )

    def _with_batch_hint(self, error: str) -> str:
        """Add that the error is about the whole batch."""
        hint = f"in a batch of {len(self.messages)}: " if len(self.messages) > 1 else ""
        return hint + error.encode()[-(ERROR_BYTES - len(hint)) :].decode("utf-8", "ignore")

    def _late_outcome(self, result: object) -> str | None:
        """Return what to log of a result that came after the messages were completed."""
        if isinstance(result, BaseException):
            return self.runtime.encryption.describe_error(self.messages[0], result)
        if result is None or self.handler.rules.policy is AckPolicy.ACK_FIRST:
            return None
        return "it returned something: use complete() of the items in the transaction"

    def log_keys(self) -> dict[str, Any]:
        """Return the fields of a log event about the batch: its first message, and the number of messages."""
        return {"message_id": self.messages[0].id, "topic": self.handler.topic, "messages": len(self.messages)}

    def log_after_completion(self, reason: str) -> None:
        """Log a result that no longer changes anything."""
        log.warning(events.MESSAGE_ENDED_AFTER_COMPLETION, **self.log_keys(), reason=reason)


def _release(message: Message) -> Settlement:
    return Settlement(message, SettleKind.RELEASE, ran=True)
