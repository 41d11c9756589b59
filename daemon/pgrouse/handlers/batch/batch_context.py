"""The second argument of a batch handler: `BatchContext` in sync handlers, `AsyncBatchContext` in async ones."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Unpack, cast, overload

from psycopg import AsyncConnection, Connection

from pgrouse.client.call import Call
from pgrouse.client.calls.processing.settle import complete
from pgrouse.client.message import Message, claim_refs
from pgrouse.errors import LockLost
from pgrouse.handlers.context import C, Resources_co
from pgrouse.handlers.ctx.own_completion import OwnCompletion
from pgrouse.handlers.ctx.publish import ContextPublish
from pgrouse.handlers.ctx.transaction import Transaction
from pgrouse.handlers.outcome import Ack, encode_output
from pgrouse.logging.event_logger import log
from pgrouse.publishing.new_message import PublishOptions
from pgrouse.publishing.published import Published
from pgrouse.telemetry import trace_context

if TYPE_CHECKING:
    import structlog

    from pgrouse.handlers.batch.batch import Batch
    from pgrouse.publishing.drivers.connection_types import AnyAsyncConnection, AnyBlockingConnection

MAX_IDS_SHOWN = 10  # in an error


class SharedBatchContext(Generic[C, Resources_co]):
    """The common part of both kinds of contexts of batch handlers.

    Attributes:
        connection: the connection of the open `transaction()` block; None if no block is open.
    """

    __slots__ = ("_batch", "_since", "_tracker", "connection")

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.connection: C | None = None
        self._tracker = batch.tracker
        self._since = time.monotonic()

    @property
    def topic(self) -> str:
        """The topic of all its messages."""
        return self._batch.handler.topic

    @property
    def resources(self) -> Resources_co:
        """What `handlers.lifespan` yielded. All handlers of the process share it; None without a lifespan."""
        return cast("Resources_co", self._batch.runtime.resources)

    @property
    def time_left_s(self) -> float | None:
        """How long the handler may still run before the shortest timeout of its messages ends it; None = no limit."""
        limit = self._batch.limit_s
        return None if limit is None else max(0.0, self._since + limit - time.monotonic())

    @property
    def stopping(self) -> bool:
        """Whether the daemon wants to stop.

        A long handler should check it, and `defer` the messages that it has not begun.
        """
        return self._batch.runtime.stopping

    @property
    def completed(self) -> bool:
        """Whether `transaction()` has completed the batch."""
        return self._batch.committed

    @property
    def lost(self) -> bool:
        """Whether this worker no longer holds any message of the batch."""
        return not self.completed and all(item.lost for item in self._batch.items)

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A logger that names the topic and tells how many messages the batch has."""
        return cast(
            "structlog.stdlib.BoundLogger",
            log.bind(topic=self.topic, messages=len(self._batch.items), **trace_context.log_keys()),
        )

    def heartbeat(self) -> None:
        """Check that this worker still holds a message of the batch.

        Locks are extended without this; call it where the handler can stop.

        Raises:
            LockLost: this worker no longer holds any message of the batch.
        """
        if self.lost:
            raise LockLost("no message of this batch is this worker's any more: stop working on it")

    def wait_for_event(self, *_: Any, **__: Any) -> NoReturn:
        """Only handlers of single messages wait for events.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "a batch handler cannot wait for an event, because its messages share one call: "
            "let it publish messages for a handler that waits"
        )

    @overload
    def complete(  # type: ignore[overload-overlap]  # as of publish
        self, conn: AnyAsyncConnection
    ) -> Coroutine[Any, Any, None]: ...

    @overload
    def complete(self, conn: AnyBlockingConnection) -> None: ...

    def complete(self, conn: Any) -> Coroutine[Any, Any, None] | None:
        """Complete the batch in the handler's own transaction, as `Context.complete` does.

        Await it on an async connection.

        It completes all messages without another outcome, each with the output of its `complete()`. Later outcomes of
        these messages do not count.

        Raises:
            LockLost: this worker no longer holds one of them: roll the transaction back.
            RuntimeError: the batch is completed already, or a block of `ctx.transaction()` is open.
            TypeError: `publish` does not take this kind of connection.
        """
        if self.connection is not None:
            raise RuntimeError("ctx.transaction() completes the batch itself: use it or ctx.complete(), not both")
        batch = self._batch
        own = OwnCompletion(BatchCompletion(batch), self.topic, batch.runtime, batch.begin_completing)
        return own.run(conn, self._tracker)

    def _find_connection(self) -> C | None:
        return self.connection

    def _to_publish(self, topic: str, payload: Any, options: PublishOptions) -> ContextPublish:
        return ContextPublish(self._batch.runtime, {}, topic, payload, options)

    def _to_transaction(self) -> Transaction:
        if self._batch.completing_own:
            raise RuntimeError("ctx.complete() completes the batch: use it or ctx.transaction(), not both")
        return Transaction(self, BatchCompletion(self._batch), self._batch.runtime)


class BatchContext(SharedBatchContext[Connection[Any], Resources_co]):
    """The second argument of a sync batch handler. `BatchContext[Resources]` declares the type of `resources`."""

    __slots__ = ()

    def publish(self, topic: str, payload: Any = None, **options: Unpack[PublishOptions]) -> Published:
        """Publish a message, as `publish` of other contexts does. It joins only the trace of the batch."""
        return self._to_publish(topic, payload, options).publish(self.connection)

    def transaction(self) -> AbstractContextManager[Connection[Any]]:
        """Open a transaction that also completes the batch: `with ctx.transaction() as conn`.

        It completes all messages without another outcome, each with the output of its `complete()`. Everything done on
        `conn` and the completions commit together when the block ends, or not at all.

        Raises:
            LockLost: at the end of the block, if this worker no longer holds one of them; everything was rolled back.
        """
        return self._to_transaction().open()


class AsyncBatchContext(SharedBatchContext[AsyncConnection[Any], Resources_co]):
    """The second argument of an async batch handler.

    It is like `BatchContext`, except that you await the methods that take time.
    """

    __slots__ = ()

    def publish(
        self, topic: str, payload: Any = None, **options: Unpack[PublishOptions]
    ) -> Coroutine[Any, Any, Published]:
        """Publish a message, as `BatchContext.publish` does.

        Without an await nothing is published, and the batch fails.
        """
        return self._to_publish(topic, payload, options).publish_async(self._find_connection, self._tracker)

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """Open a transaction that also completes the batch, as `BatchContext.transaction` does.

        Use it as `async with ctx.transaction() as conn`.
        """
        return self._to_transaction().open_async(self._tracker)


class BatchCompletion:
    """The completion of a batch by its transaction: see `Completion`. A rollback also undoes the `complete()` calls."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._completing: list[Message] = []

    def check_open(self) -> None:
        """Make sure that the batch is not completed."""
        if self._batch.committed:
            raise RuntimeError("this batch is completed already: do all its writes in one ctx.transaction()")

    def messages(self) -> list[Message]:
        """Return the messages without another outcome."""
        return self._batch.completing()

    def outputs(self) -> list[str | None]:
        """Return the output that `complete()` gave each of them, as it is stored."""
        keep = self._batch.runtime.encryption.encrypt_output
        outcomes = self._batch.outcomes
        return [keep(message, _output(message, outcomes.get(message.id))) for message in self.messages()]

    def call(self) -> Call[list[int]]:
        """Return the call that completes these messages, each with the output of its `complete()`."""
        self._completing = self.messages()
        return complete(*claim_refs(self._completing), self.outputs())

    def check(self, lost: list[int], what_now: str) -> None:
        """Check that none of these messages was lost."""
        if lost:
            self._batch.was_rolled_back = True
            named = ", ".join(map(str, lost[:MAX_IDS_SHOWN])) + (" and others" if len(lost) > MAX_IDS_SHOWN else "")
            raise LockLost(f"{len(lost)} of the batch's messages are not this worker's any more ({named}): {what_now}")

    def begin(self) -> None:
        """From now on, `complete()` of the items belongs to this transaction."""
        self._batch.in_transaction = True

    def committed(self) -> None:
        """The messages are completed."""
        self._batch.complete(self._completing)

    def end(self) -> None:
        """The transaction was committed or rolled back."""
        if self._batch.in_transaction:
            self._batch.leave_transaction()


def _output(message: Message, result: BaseException | None) -> str | None:
    if not isinstance(result, Ack) or result.output is None:
        return None
    try:
        return encode_output(result.output)
    except ValueError as error:
        raise ValueError(f"the output of message {message.id} cannot be kept: {error}") from error
