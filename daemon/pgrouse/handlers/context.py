"""The second argument of a handler: `Context` in sync handlers, `AsyncContext` in async ones."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from datetime import timedelta
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVarTuple, Unpack, cast, overload

import psycopg
from typing_extensions import TypeVar

from pgrouse.client.call import Call
from pgrouse.client.calls.processing.settle import complete
from pgrouse.client.message import Message, claim_refs
from pgrouse.config import duration
from pgrouse.config.duration import AnyDuration
from pgrouse.errors import LockLost
from pgrouse.handlers.ctx.event import Events, to_wait
from pgrouse.handlers.ctx.message_view import MessageView
from pgrouse.handlers.ctx.own_completion import OwnCompletion
from pgrouse.handlers.ctx.predecessors import Predecessor, read_predecessors, read_predecessors_async
from pgrouse.handlers.ctx.progress import progress_json
from pgrouse.handlers.ctx.publish import ContextPublish
from pgrouse.handlers.ctx.publish_tracker import PublishTracker
from pgrouse.handlers.ctx.step import Steps, to_step
from pgrouse.handlers.ctx.transaction import Transaction
from pgrouse.handlers.event_loop import DONE
from pgrouse.handlers.outcome import UNCHANGED, Ack, Outcome, Reject, Retry, encode_output
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.publishing.new_message import PublishOptions
from pgrouse.publishing.published import Published
from pgrouse.publishing.tracked_coroutine import TrackedCoroutine
from pgrouse.telemetry import trace_context

if TYPE_CHECKING:
    import structlog

    from pgrouse.publishing.drivers.connection_types import AnyAsyncConnection, AnyBlockingConnection

# The type of the resources of an application. A handler whose context does not name it gets an object, and never Any.
Resources_co = TypeVar("Resources_co", covariant=True, default=object)
T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
C = TypeVar("C", bound=psycopg.Connection[Any] | psycopg.AsyncConnection[Any])

# The longest time that messages.heartbeat accepts.
MAX_LOCK = timedelta(days=7)


class SharedContext(MessageView, Generic[C, Resources_co]):
    """The common part of both kinds of contexts.

    Attributes:
        output: the value that `transaction()` stores as the message's output. A handler without a transaction just
            returns it.
        completed: whether the message is completed already, by `transaction()` or before the handler began (ack_first).
        completing: whether `complete()` was called: the message is completed if its transaction is committed.
        action: the outcome of the first of `ack()`, `nack()` and `reject()`; None if none was called.
    """

    __slots__ = (
        "_connection",
        "_events",
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
        self._events: Events | None = None
        self._tracker: PublishTracker | None = None

    @property
    def topic(self) -> str:
        """Its topic."""
        return self._message.topic

    @property
    def resources(self) -> Resources_co:
        """What `handlers.lifespan` yielded. All handlers of the process share it; None without a lifespan."""
        return cast("Resources_co", self._runtime.resources)

    @property
    def waited_s(self) -> float:
        """How long the message had been ready when it was claimed."""
        return self._message.waited_s

    @property
    def connection(self) -> C | None:
        """The connection of the transaction in which the calling code runs; None = no transaction.

        The transaction is that of a `transaction()` block, or of a step.
        """
        of_step = None if self._steps is None else self._steps.connection
        return self._connection if of_step is None else cast("C", of_step)

    @connection.setter
    def connection(self, conn: C | None) -> None:
        self._connection = conn
        if self._steps is not None:
            # A transaction that has ended without completing the message was rolled back, and its steps with it.
            self._steps.rolled_back()

    @property
    def time_left_s(self) -> float | None:
        """How long the handler may still run before its timeout ends it; None = no limit."""
        limit = self._message.timeout_s
        return None if limit is None else max(0.0, self._since + limit - time.monotonic())

    @property
    def stopping(self) -> bool:
        """Whether the daemon wants to stop. A long handler should check it, and `Defer` with its state."""
        return self._runtime.stopping

    @property
    def lost(self) -> bool:
        """Whether this worker no longer holds the message: it was cancelled, ran too long, or its lock expired."""
        return not self.completed and not self._runtime.holds(self._message)

    @property
    def cancelled(self) -> bool:
        """Whether the message was cancelled; then it is also lost.

        A handler in a thread should check it: a thread cannot be stopped.
        """
        return self._runtime.cancelled(self._message)

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A logger that names the message, and the span if there is one."""
        return cast(
            "structlog.stdlib.BoundLogger",
            log.bind(message_id=self.id, topic=self.topic, attempt=self.attempt, **trace_context.log_keys()),
        )

    def progress(self, done: float, total: float | None = None, unit: str | None = None) -> None:
        """Report how far the work is. Others see it within about a second; the handler does not wait for that.

        Args:
            done: how much is done, at least 0.
            total: how much there is in total, if that is known.
            unit: the unit of both, like "rows".

        Raises:
            ValueError: an argument is not valid.
        """
        self._runtime.note_progress(self._message, progress_json(done, total, unit))

    def ack(self, output: Any = None) -> bool:
        """Acknowledge the message, whatever the handler returns or raises later. It is settled when the handler ends.

        Args:
            output: the output to keep; by default, what the handler returns.

        Returns:
            Whether this counts: only the first call of ack, nack and reject does.
        """
        return self._act(Ack(output))

    def nack(
        self,
        after: AnyDuration | None = None,
        *,
        state: Any = UNCHANGED,
        reason: str = "the handler called ctx.nack()",
    ) -> bool:
        """Report that the attempt failed, as `Retry` does with the same arguments.

        Return whether this counts, as `ack` does.
        """
        return self._act(Retry(after, state=state, reason=reason))

    def reject(self, reason: str) -> bool:
        """Report that the message is invalid, as `Reject` does. Return whether this counts, as `ack` does."""
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
        """Complete the message in the handler's own transaction; await it on an async connection.

        The work in that transaction and the completion are committed together, or not at all: effects in this database
        happen exactly once. Call it last: the transaction holds the message from then on. This call commits nothing,
        unless the connection is in autocommit mode. If the transaction is not committed before the handler ends, the
        attempt fails. A second call in the same transaction does nothing; after a rollback, it completes the message
        again.

        Args:
            conn: a connection or session of the kinds that `pgrouse.publish` takes; its role needs the rights of
                `messages_worker`.
            output: the output to keep; by default `ctx.output`.

        Raises:
            LockLost: this worker no longer holds the message: roll the transaction back.
            RuntimeError: it is completed already, by `ctx.transaction()` or ack_first, or has another outcome.
            TypeError: the connection is of no such kind.
            ValueError: the output cannot be kept.
        """
        if self._connection is not None:
            raise RuntimeError("ctx.transaction() completes the message itself: use it or ctx.complete(), not both")
        if self.connection is not None:
            raise RuntimeError(
                "ctx.complete() in the function of ctx.step(transaction=True): "
                "call it behind the step, or do the step in ctx.transaction()"
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

    def _get_events(self) -> Events:
        self._events = self._events or Events(self._message, self._runtime)
        return self._events

    def _check_may_wait(self) -> None:
        if self.completed or self.completing or self.action is not None:
            raise RuntimeError("ctx.wait_for_event() after the outcome of the message: wait before it")
        if self.connection is not None:
            raise RuntimeError("ctx.wait_for_event() in a transaction, which cannot stay open: wait before or after it")

    def _to_publish(self, topic: str, payload: Any, options: PublishOptions) -> ContextPublish:
        return ContextPublish(self._runtime, self.headers, topic, payload, options)

    def _to_transaction(self) -> Transaction:
        if self.completing:
            raise RuntimeError("ctx.complete() completes the message: use it or ctx.transaction(), not both")
        return Transaction(self, MessageCompletion(self, self._message, self._runtime), self._runtime)


class Context(SharedContext[psycopg.Connection[Any], Resources_co]):
    """The second argument of a sync handler: its methods block until they are done.

    `Context[Resources]` declares the type of `resources`.
    """

    __slots__ = ()

    def heartbeat(self, extend: AnyDuration | None = None) -> None:
        """Check that this worker still holds the message.

        Locks are extended without this; call it where the handler can stop.

        Args:
            extend: extend the lock to at least this long from now, at most 7 days: a timedelta, seconds, or "30s".

        Raises:
            LockLost: this worker no longer holds it.
            ValueError: extend is not a valid time.
        """
        self._heartbeat(extend)

    @overload
    def step(
        self,
        name: str,
        function: Callable[[psycopg.Connection[Any], Unpack[Ts]], Any],
        /,
        *args: *Ts,
        returns: type[T],
        transaction: Literal[True],
    ) -> T: ...

    @overload
    def step(self, name: str, function: Callable[[Unpack[Ts]], Any], /, *args: *Ts, returns: type[T]) -> T: ...

    @overload
    def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, returns: UnionType, transaction: bool = False
    ) -> Any: ...

    @overload
    def step(
        self,
        name: str,
        function: Callable[[psycopg.Connection[Any], Unpack[Ts]], T],
        /,
        *args: *Ts,
        transaction: Literal[True],
    ) -> T: ...

    @overload
    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T: ...

    def step(  # type: ignore[misc]  # the arguments of a function have other names than these options
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        returns: Any = None,
        transaction: bool = False,
        **named: Any,
    ) -> Any:
        """Do a step once: return what `function(*args, **named)` returned to an earlier attempt of this message.

        If there is no such result, call it and keep the result.

        A later attempt is one after a retry, a deferral, a lost lock or a redrive. The function runs at least once: if
        the worker dies before the result is kept, it runs again.

        Args:
            name: the name of the step, unique in its message: 1 to 200 characters, at most 1000 steps.
            function: does the step; its result is kept as JSON.
            *args: the arguments of the function.
            returns: the type of the result: a pydantic model, a dataclass, `list[Order]`; unless given, the one in the
                annotation of the function. Without both, what JSON gives.
            transaction: call `function(conn, *args, **named)`, and keep the result in the transaction of that
                connection: the SQL on it takes effect exactly once. Inside a `ctx.transaction()` block, that
                transaction is used, and the result is kept with it.
            **named: keyword arguments of the function; with `returns` or `transaction`, type checkers want
                `functools.partial` for them.

        Raises:
            InvalidStep: the result is not JSON, has more than 1 MiB or does not fit its type, its type cannot be read,
                or the name was used before in this attempt.
            LockLost: this worker no longer holds the message; nothing was kept.
            RuntimeError: the handler runs with isolation = "process".
        """
        step = to_step(name, function, args, named, returns, transaction, not self.completed)
        return self._get_steps().run_blocking(step, self._find_connection)

    @overload
    def wait_for_event(self, name: str, timeout: AnyDuration | None = None, *, returns: type[T]) -> T: ...

    @overload
    def wait_for_event(self, name: str, timeout: AnyDuration | None = None, *, returns: Any = None) -> Any: ...

    def wait_for_event(self, name: str, timeout: AnyDuration | None = None, *, returns: Any = None) -> Any:
        """Return the payload of an event that is signalled to this message: by `messages.signal`, a URL, an operator.

        If it has not come yet, the attempt ends here, and is not counted. The message waits without a place in any
        limit, without a connection and without a worker. When the event comes, or the time is over, the handler begins
        again: do what is not to be repeated before the wait in `ctx.step()`. A signal that comes before the wait is
        kept. The nth wait for a name gets the nth event of this name, in each attempt the same.

        Args:
            name: the event: 1 to 180 printable characters.
            timeout: how long to wait at most: a timedelta, seconds, or "7d"; without a limit unless given. It counts
                from the first time that the handler gets here.
            returns: the type of the payload: a pydantic model, a dataclass, `list[str]`. Without it, what JSON gives.

        Raises:
            EventTimeout: it did not come in time; a TimeoutError. Later attempts of the message get it again.
            InvalidEvent: the name cannot be one, or the payload does not fit its type.
            LockLost: this worker no longer holds the message.
            RuntimeError: a transaction is open, or the message has an outcome.
        """
        wait = to_wait(name, timeout, returns)
        self._check_may_wait()
        return self._get_events().wait_blocking(wait)

    def signal_url(self, name: str, expires: AnyDuration = "7d") -> str:
        """Return a URL whose page has a button that signals an event to this message, once; a POST does so, too.

        Anyone with the URL may do this, and nothing else. It is for the next `wait_for_event(name)` of the handler.

        Args:
            name: the event.
            expires: how long the URL holds, at most 366 days: a timedelta, seconds, or "7d".

        Raises:
            InvalidEvent: the name cannot be one.
            ValueError: `web.url` is not set, or expires is not a valid time.
            RuntimeError: the handler runs with isolation = "process".
        """
        return self._get_events().url_blocking(name, expires)

    def predecessors(self) -> list[Predecessor]:
        """Return how the messages named in `after` ended, and their outputs, in the order of `after`.

        Each call asks the database once. Outputs of encrypted topics are decrypted.

        Raises:
            LockLost: this worker no longer holds the message.
            RuntimeError: the handler runs with isolation = "process".
        """
        return read_predecessors(self._message, self._runtime, self.connection)

    def publish(self, topic: str, payload: Any = None, **options: Unpack[PublishOptions]) -> Published:
        """Publish another message, as `pgrouse.publish` does.

        Inside a `ctx.transaction()` block it is published together with the completion of this message, or not at all:
        exactly once. Elsewhere it is published at once, on a connection of the worker: a handler that fails after that,
        and is tried again, publishes again. It joins the trace of this message, and is encrypted if the worker encrypts
        its topic.

        Args:
            topic: what kind of message it is.
            payload: any value with a JSON form.
            **options: the options of `pgrouse.publish`.

        Raises:
            InvalidMessage, PublishRejected: as `pgrouse.publish`.
            RuntimeError: the handler runs with isolation = "process".
        """
        return self._to_publish(topic, payload, options).publish(self.connection)

    def transaction(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Open a transaction that also completes the message: `with ctx.transaction() as conn`.

        Everything done on `conn` and the completion commit together when the block ends, or not at all: effects in this
        database happen exactly once. Set `ctx.output` before the block ends to keep an output.

        Raises:
            LockLost: at the end of the block, if this worker no longer holds the message; everything was rolled back.
        """
        return self._to_transaction().open()


class AsyncContext(SharedContext[psycopg.AsyncConnection[Any], Resources_co]):
    """The second argument of an async handler: as `Context`, except that you await the methods that take time."""

    __slots__ = ()

    def heartbeat(self, extend: AnyDuration | None = None) -> Awaitable[None]:
        """Check that this worker still holds the message, as `Context.heartbeat` does.

        The check runs at the call; await it to wait for the extended lock.
        """
        return self._heartbeat(extend)

    @overload
    def step(
        self,
        name: str,
        function: Callable[[psycopg.AsyncConnection[Any], Unpack[Ts]], Any],
        /,
        *args: *Ts,
        returns: type[T],
        transaction: Literal[True],
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self, name: str, function: Callable[[Unpack[Ts]], Any], /, *args: *Ts, returns: type[T]
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, returns: UnionType, transaction: bool = False
    ) -> Coroutine[Any, Any, Any]: ...

    @overload
    def step(
        self,
        name: str,
        function: Callable[[psycopg.AsyncConnection[Any], Unpack[Ts]], Awaitable[T]],
        /,
        *args: *Ts,
        transaction: Literal[True],
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **named: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self, name: str, function: Callable[P, T], /, *args: P.args, **named: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...

    def step(  # type: ignore[misc]  # the arguments of a function have other names than these options
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        returns: Any = None,
        transaction: bool = False,
        **named: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Do a step once, as `Context.step` does. The function may also be async."""
        step = to_step(name, function, args, named, returns, transaction, not self.completed)
        done = self._get_steps().run_async(step, self._find_connection)
        return self._get_tracker().track(TrackedCoroutine(done, self.topic, "step"))

    @overload
    def wait_for_event(
        self, name: str, timeout: AnyDuration | None = None, *, returns: type[T]
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def wait_for_event(
        self, name: str, timeout: AnyDuration | None = None, *, returns: Any = None
    ) -> Coroutine[Any, Any, Any]: ...

    def wait_for_event(
        self, name: str, timeout: AnyDuration | None = None, *, returns: Any = None
    ) -> Coroutine[Any, Any, Any]:
        """Return the payload of an event that is signalled to this message, as `Context.wait_for_event` does.

        Without an await the handler does not wait, and the attempt fails.
        """
        wait = to_wait(name, timeout, returns)
        self._check_may_wait()
        waiting = self._get_events().wait_async(wait)
        return self._get_tracker().track(TrackedCoroutine(waiting, self.topic, "wait_for_event"))

    def signal_url(self, name: str, expires: AnyDuration = "7d") -> Coroutine[Any, Any, str]:
        """Return a URL that signals an event to this message, as `Context.signal_url` does."""
        return self._get_events().url_async(name, expires)

    def predecessors(self) -> Coroutine[Any, Any, list[Predecessor]]:
        """Return how the messages named in `after` ended, as `Context.predecessors` does."""
        return read_predecessors_async(self._message, self._runtime, self._find_connection)

    def publish(
        self, topic: str, payload: Any = None, **options: Unpack[PublishOptions]
    ) -> Coroutine[Any, Any, Published]:
        """Publish another message, as `Context.publish` does.

        Without an await nothing is published, and the attempt fails.
        """
        return self._to_publish(topic, payload, options).publish_async(self._find_connection, self._get_tracker())

    def transaction(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Open a transaction that also completes the message, as `Context.transaction` does.

        Use it as `async with ctx.transaction() as conn`.
        """
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
        """Do nothing: the message does not change before the commit."""

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
