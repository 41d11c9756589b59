"""What a handler can know and do besides its payload: `Context` in sync handlers, `AsyncContext` in async ones."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Unpack, cast, overload

import psycopg
from typing_extensions import TypeVar

from pgrouse import events
from pgrouse.client.call import Call
from pgrouse.client.calls.settle import complete
from pgrouse.client.message import Message, claim_refs
from pgrouse.config import duration
from pgrouse.config.duration import AnyDuration
from pgrouse.errors import LockLost
from pgrouse.event_logger import log
from pgrouse.handlers.context_publish import ContextPublish
from pgrouse.handlers.event_loop import DONE
from pgrouse.handlers.message_view import MessageView
from pgrouse.handlers.outcome import UNCHANGED, Ack, Outcome, Reject, Retry, encode_output
from pgrouse.handlers.own_completion import OwnCompletion
from pgrouse.handlers.predecessors import Predecessor, read_predecessors, read_predecessors_async
from pgrouse.handlers.progress import progress_json
from pgrouse.handlers.publish_tracker import PublishTracker
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.handlers.step import Steps, to_step
from pgrouse.handlers.transaction import Transaction
from pgrouse.publishing.new_message import PublishOptions
from pgrouse.publishing.published import Published
from pgrouse.publishing.tracked_coroutine import TrackedCoroutine
from pgrouse.telemetry import trace_context

if TYPE_CHECKING:
    import structlog

    from pgrouse.publishing.drivers.connection_types import AnyAsyncConnection, AnyBlockingConnection

# The type of the resources of an application; a context without one takes any.
R = TypeVar("R", default=Any)
C = TypeVar("C", bound=psycopg.Connection[Any] | psycopg.AsyncConnection[Any])

# What messages.heartbeat takes.
MAX_LOCK = timedelta(days=7)


class SharedContext(MessageView, Generic[C, R]):
    """What both kinds of contexts are.

    Attributes:
        output: what `transaction()` stores as the message's output. A handler without one just returns it.
        completed: whether the message is completed already, by `transaction()` or before the handler began (ack_first).
        completing: whether `complete()` was called: the message is completed if its transaction is committed.
        action: the outcome of the first of `ack()`, `nack()` and `reject()`; None if none was called.
    """

    __slots__ = (
        "_connection",
        "_runtime",
        "_since",
        "_steps",
        "_tracker",
        "action",
        "completed",
        "completing",
        "output",
    )

    def __init__(self, message: Message, runtime: HandlerRuntime, *, completed: bool = False) -> None:
        self._message = message
        self._runtime = runtime
        self._since = time.monotonic()
        self.output: Any = None
        self.completed = completed
        self.completing = False
        self.action: Outcome | None = None
        self._connection: C | None = None
        self._steps: Steps | None = None
        self._tracker: PublishTracker | None = None

    @property
    def topic(self) -> str:
        """Its topic."""
        return self._message.topic

    @property
    def resources(self) -> R:
        """What `handlers.lifespan` yielded: what all handlers of the process share; None without a lifespan."""
        return cast("R", self._runtime.resources)

    @property
    def waited_s(self) -> float:
        """How long it had been ready when it was claimed."""
        return self._message.waited_s

    @property
    def connection(self) -> C | None:
        """That of the transaction in which the calling code runs: of the block of `transaction()`, or of a step; None = it runs in none."""
        of_step = None if self._steps is None else self._steps.connection
        return self._connection if of_step is None else cast("C", of_step)

    @connection.setter
    def connection(self, conn: C | None) -> None:
        self._connection = conn
        if self._steps is not None:
            # A transaction that has ended and did not complete the message was rolled back, and its steps with it.
            self._steps.rolled_back()

    @property
    def time_left_s(self) -> float | None:
        """How long the handler may still run before its timeout ends it; None = as long as it takes."""
        limit = self._message.timeout_s
        return None if limit is None else max(0.0, self._since + limit - time.monotonic())

    @property
    def stopping(self) -> bool:
        """Whether the daemon wants to stop. A long handler should check it, and `Defer` with its state."""
        return self._runtime.stopping

    @property
    def lost(self) -> bool:
        """Whether the message is not this worker's any more: it was cancelled, overran its time, or its lock expired."""
        return not self.completed and not self._runtime.holds(self._message)

    @property
    def cancelled(self) -> bool:
        """Whether the message was cancelled; then it is lost, too. A handler in a thread should check it: a thread cannot be stopped."""
        return self._runtime.cancelled(self._message)

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A logger that names the message, and the span if there is one."""
        return cast(
            "structlog.stdlib.BoundLogger",
            log.bind(message_id=self.id, topic=self.topic, attempt=self.attempt, **trace_context.log_keys()),
        )

    def progress(self, done: float, total: float | None = None, unit: str | None = None) -> None:
        """Note how far the work is. Others see it within about a second; nothing waits for that.

        Args:
            done: how much is done, from 0 on.
            total: how much there is, if that is known.
            unit: of what: "rows".

        Raises:
            ValueError: one of them is no such thing.
        """
        self._runtime.note_progress(self._message, progress_json(done, total, unit))

    def ack(self, output: Any = None) -> bool:
        """Say that the message succeeded, whatever the handler returns or raises after this. It is settled when the handler ends.

        Args:
            output: what to keep of it; what the handler returns, unless given.

        Returns:
            Whether this counts: of ack, nack and reject the first one does.
        """
        return self._act(Ack(output))

    def nack(
        self,
        after: AnyDuration | None = None,
        *,
        state: Any = UNCHANGED,
        reason: str = "the handler called ctx.nack()",
    ) -> bool:
        """Say that the attempt failed, as `Retry` does with the same arguments. Returns whether this counts, as of `ack`."""
        return self._act(Retry(after, state=state, reason=reason))

    def reject(self, reason: str) -> bool:
        """Say that the message is invalid, as `Reject` does. Returns whether this counts, as of `ack`."""
        return self._act(Reject(reason))

    def _act(self, action: Outcome) -> bool:
        if self.completed or self.completing or self.action is not None:
            first = "it is completed" if self.action is None else type(self.action).__name__
            self.log.warning(events.ATTEMPT_ACTION_IGNORED, action=type(action).__name__, first=first)
            return False
        self.action = action
        return True

    def _heartbeat(self, extend: AnyDuration | None) -> Awaitable[None]:
        wished = None if extend is None else _lock_time(extend)
        if self.lost:
            raise LockLost(f"message {self.id} is not this worker's any more: stop working on it")
        if wished is None or self.completed or self.completing:
            return DONE
        return self._runtime.extend(self._message, wished)

    @overload
    def complete(  # type: ignore[overload-overlap]  # as of publish
        self, conn: AnyAsyncConnection, output: Any = None
    ) -> Coroutine[Any, Any, None]: ...

    @overload
    def complete(self, conn: AnyBlockingConnection, output: Any = None) -> None: ...

    def complete(self, conn: Any, output: Any = None) -> Coroutine[Any, Any, None] | None:
        """Complete the message in a transaction of the handler's own; await it on an async connection.

        What is done in that transaction and the completion are committed together, or not at all: effects in this database happen exactly
        once. Call it last: the transaction holds the message from then on. Nothing is committed here, unless the connection is in
        autocommit mode. If the transaction is not committed before the handler ends, the attempt fails. A second call in the same
        transaction does nothing; after a rollback, it completes the message again.

        Args:
            conn: a connection or session, as `pgrouse.publish` takes them; its role needs the rights of `messages_worker`.
            output: what to keep of the message; `ctx.output` unless given.

        Raises:
            LockLost: the message is not this worker's any more: roll the transaction back.
            RuntimeError: it is completed already, by `ctx.transaction()` or ack_first, or has another outcome.
            TypeError: the connection is none of these.
            ValueError: the output cannot be kept.
        """
        if self._connection is not None:
            raise RuntimeError("ctx.transaction() completes the message itself: use it or ctx.complete(), not both")
        if self.connection is not None:
            raise RuntimeError(
                "ctx.complete() in the function of ctx.step(transaction=True): call it behind the step, or do the step in ctx.transaction()"
            )
        if output is not None:
            self.output = output
        completion = MessageCompletion(self, self._message, self._runtime)
        return OwnCompletion(completion, self.topic, self._runtime, self._set_completing).run(conn, self._get_tracker())

    def _set_completing(self) -> None:
        self.completing = True

    def _get_tracker(self) -> PublishTracker:
        self._tracker = self._tracker or PublishTracker()
        return self._tracker

    def _find_connection(self) -> C | None:
        return self.connection

    def _get_steps(self) -> Steps:
        if self.completing:
            raise RuntimeError("ctx.step() after ctx.complete(): do all steps before it")
        if self._steps is None:
            self._steps = Steps(self._message, self._runtime, self._get_tracker())
        return self._steps

    def _to_publish(self, topic: str, payload: Any, options: PublishOptions) -> ContextPublish:
        return ContextPublish(self._runtime, self.headers, topic, payload, options)

    def _to_transaction(self) -> Transaction:
        if self.completing:
            raise RuntimeError("ctx.complete() completes the message: use it or ctx.transaction(), not both")
        return Transaction(self, MessageCompletion(self, self._message, self._runtime), self._runtime)


class Context(SharedContext[psycopg.Connection[Any], R]):
    """The second argument of a sync handler: what takes time waits for its end. `Context[Resources]` says what `resources` is."""

    __slots__ = ()

    def heartbeat(self, extend: AnyDuration | None = None) -> None:
        """Make sure that the message is still this worker's. Locks are extended without this; it is a place to stop at.

        Args:
            extend: lock it until so long from now, at most 7 days, if it is not locked for longer already: a timedelta, seconds, or "30s".

        Raises:
            LockLost: it is not.
            ValueError: extend is no such time.
        """
        self._heartbeat(extend)

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        returns: Any = None,
        transaction: bool = False,
        **named: Any,
    ) -> Any:
        """Do a step once: return what `function(*args, **named)` returned to an earlier attempt of this message, or call it and keep that.

        Later attempts are those after a retry, a deferral, a lost lock and a redrive. The function runs at least once: if the worker dies
        before the result is kept, it runs again.

        Args:
            name: of the step, unique in its message: 1 to 200 characters, at most 1000 steps.
            function: what the step does; its result is kept as JSON.
            *args: what it is called with.
            returns: the type of the result, for what is more than JSON: a pydantic model, a dataclass, `list[Order]`.
            transaction: call `function(conn, *args, **named)`, and keep the result in the transaction of that connection: what is done on
                it happens exactly once. Inside of `ctx.transaction()` it is that one, and the result is kept with it.
            **named: what it is called with, too.

        Raises:
            InvalidStep: the result is not JSON, has more than 1 MiB or does not fit its type, or the name was used before in this attempt.
            LockLost: the message is not this worker's any more; nothing was kept.
            RuntimeError: the handler runs with isolation = "process".
        """
        step = to_step(name, function, args, named, returns, transaction, not self.completed)
        return self._get_steps().run_blocking(step, self._find_connection)

    def predecessors(self) -> list[Predecessor]:
        """Return how the messages ended after which this one was published, and their outputs, in the order of `after`.

        Each call asks the database once. Outputs of encrypted topics are decrypted.

        Raises:
            LockLost: the message is not this worker's any more.
            RuntimeError: the handler runs with isolation = "process".
        """
        return read_predecessors(self._message, self._runtime, self.connection)

    def publish(self, topic: str, payload: Any = None, **options: Unpack[PublishOptions]) -> Published:
        """Publish another message, as `pgrouse.publish` does.

        Inside of `ctx.transaction()` it is published with the completion of this one, or not at all: exactly once. Outside of it, at once, on
        a connection of the worker: a handler that fails behind it, and is tried again, publishes again. It belongs to the trace of this
        message, and is encrypted if the worker encrypts its topic.

        Args:
            topic: what kind of message it is.
            payload: any value with a JSON form.
            **options: as of `pgrouse.publish`.

        Raises:
            InvalidMessage, PublishRejected: as `pgrouse.publish`.
            RuntimeError: the handler runs with isolation = "process".
        """
        return self._to_publish(topic, payload, options).publish(self.connection)

    def transaction(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Open a transaction that also completes the message: `with ctx.transaction() as conn`.

        Everything done on `conn` and the completion commit together when the block ends, or not at all: effects in this database
        happen exactly once. Set `ctx.output` before the block ends to keep an output.

        Raises:
            LockLost: at the end of the block, if the message is not this worker's any more; everything was rolled back.
        """
        return self._to_transaction().open()


class AsyncContext(SharedContext[psycopg.AsyncConnection[Any], R]):
    """The second argument of an async handler: as `Context`, but that what takes time is awaited."""

    __slots__ = ()

    def heartbeat(self, extend: AnyDuration | None = None) -> Awaitable[None]:
        """Make sure that the message is still this worker's, as `Context.heartbeat` does: at the call. Await it to know that its lock is extended."""
        return self._heartbeat(extend)

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        returns: Any = None,
        transaction: bool = False,
        **named: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Do a step once, as `Context.step` does. The function may be async too."""
        step = to_step(name, function, args, named, returns, transaction, not self.completed)
        done = self._get_steps().run_async(step, self._find_connection)
        return self._get_tracker().track(TrackedCoroutine(done, self.topic, "step"))

    def predecessors(self) -> Coroutine[Any, Any, list[Predecessor]]:
        """Return how the messages ended after which this one was published, as `Context.predecessors` does."""
        return read_predecessors_async(self._message, self._runtime, self._find_connection)

    def publish(
        self, topic: str, payload: Any = None, **options: Unpack[PublishOptions]
    ) -> Coroutine[Any, Any, Published]:
        """Publish another message, as `Context.publish` does. What is not awaited is not published, and fails the attempt."""
        return self._to_publish(topic, payload, options).publish_async(self._find_connection, self._get_tracker())

    def transaction(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Open a transaction that also completes the message, as `Context.transaction` does: `async with ctx.transaction() as conn`."""
        return self._to_transaction().open_async(self._get_tracker())


class MessageCompletion:
    """The completion of a handler's message by its transaction: see `Completion`."""

    def __init__(self, context: SharedContext[Any, Any], message: Message, runtime: HandlerRuntime) -> None:
        self._context, self._message, self._runtime = context, message, runtime

    def check_open(self) -> None:
        """Make sure that the message is not completed, and has no outcome."""
        if self._context.action is not None:
            raise RuntimeError(
                f"message {self._message.id} has an outcome by ctx.ack(), ctx.nack() or ctx.reject(): "
                "use one of them or ctx.transaction() or ctx.complete(), not both"
            )
        if self._context.completed:
            raise RuntimeError(
                f"message {self._message.id} is completed already: do all its writes in one ctx.transaction()"
            )

    def messages(self) -> list[Message]:
        """Return the message."""
        return [self._message]

    def outputs(self) -> list[str | None]:
        """Return `ctx.output` as it is stored."""
        output = self._context.output
        text = None if output is None else encode_output(output)
        return [self._runtime.encryption.encrypt_output(self._message, text)]

    def call(self) -> Call[list[int]]:
        """Return the call that completes the message with `ctx.output`."""
        stored = self.outputs()
        return complete(*claim_refs([self._message]), None if stored == [None] else stored)

    def check(self, lost: list[int], what_now: str) -> None:
        """Check that the message was not lost."""
        if lost:
            raise LockLost(f"message {self._message.id} is not this worker's any more: {what_now}")

    def begin(self) -> None:
        """Do nothing: until the commit the message is what it was."""

    def committed(self) -> None:
        """The message is completed."""
        self._context.completed = True
        self._runtime.completed(self._message)

    def end(self) -> None:
        """Do nothing."""


def _lock_time(extend: AnyDuration) -> timedelta:
    with suppress(TypeError, ValueError):
        time_ = duration.to_timedelta(extend, "extend")
        if timedelta(0) < time_ <= MAX_LOCK:
            return time_
    raise ValueError(f"ctx.heartbeat(extend={extend!r:.50}): use {duration.WAYS}, more than 0 and at most 7 days")
