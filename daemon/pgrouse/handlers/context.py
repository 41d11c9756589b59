"""What a handler can know and do besides its payload."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Unpack, cast

import psycopg
import structlog

from pgrouse import events
from pgrouse.client.call import Call
from pgrouse.client.calls.settle import complete
from pgrouse.client.message import Message, claim_refs
from pgrouse.config import duration
from pgrouse.config.duration import AnyDuration
from pgrouse.errors import LockLost
from pgrouse.handlers.context_publish import ContextPublish
from pgrouse.handlers.event_loop import DONE, is_on_event_loop
from pgrouse.handlers.message_view import MessageView
from pgrouse.handlers.outcome import UNCHANGED, Ack, Outcome, Reject, Retry, encode_output
from pgrouse.handlers.progress import progress_json
from pgrouse.handlers.publish_tracker import PublishTracker
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.handlers.step import Steps, to_step
from pgrouse.handlers.transaction import Transaction
from pgrouse.publishing.new_message import PublishOptions
from pgrouse.telemetry import trace_context

# What messages.heartbeat takes.
MAX_LOCK = timedelta(days=7)


class Context(MessageView):
    """The second argument of a handler.

    Attributes:
        output: what `transaction()` stores as the message's output. A handler without one just returns it.
        completed: whether the message is completed already, by `transaction()` or before the handler began (ack_first).
        action: the outcome of the first of `ack()`, `nack()` and `reject()`; None if none was called.
    """

    __slots__ = ("_connection", "_runtime", "_since", "_steps", "_tracker", "action", "completed", "output")

    def __init__(self, message: Message, runtime: HandlerRuntime, *, completed: bool = False) -> None:
        self._message = message
        self._runtime = runtime
        self._since = time.monotonic()
        self.output: Any = None
        self.completed = completed
        self.action: Outcome | None = None
        self._connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any] | None = None
        self._steps: Steps | None = None
        self._tracker: PublishTracker | None = None

    @property
    def topic(self) -> str:
        """Its topic."""
        return self._message.topic

    @property
    def waited_s(self) -> float:
        """How long it had been ready when it was claimed."""
        return self._message.waited_s

    @property
    def connection(self) -> psycopg.AsyncConnection[Any] | psycopg.Connection[Any] | None:
        """That of the block of `transaction()` that is open, or None."""
        return self._connection

    @connection.setter
    def connection(self, conn: psycopg.AsyncConnection[Any] | psycopg.Connection[Any] | None) -> None:
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
            structlog.get_logger().bind(
                message_id=self.id, topic=self.topic, attempt=self.attempt, **trace_context.log_keys()
            ),
        )

    def heartbeat(self, extend: AnyDuration | None = None) -> Awaitable[None]:
        """Make sure that the message is still this worker's. Locks are extended without this; it is a place to stop at.

        Args:
            extend: lock it until so long from now, at most 7 days, if it is not locked for longer already: a timedelta, seconds, or "30s".
                A handler in a thread waits here until that is done, an async one awaits what is returned.

        Raises:
            LockLost: it is not.
            ValueError: extend is no such time.
        """
        wished = None if extend is None else _lock_time(extend)
        if self.lost:
            raise LockLost(f"message {self.id} is not this worker's any more: stop working on it")
        if wished is None or self.completed:
            return DONE
        return self._runtime.extend(self._message, wished)

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
        if self.completed or self.action is not None:
            first = "it is completed" if self.completed else type(self.action).__name__
            self.log.warning(events.ATTEMPT_ACTION_IGNORED, action=type(action).__name__, first=first)
            return False
        self.action = action
        return True

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

        An async handler awaits it, and its function may be async too. Later attempts are those after a retry, a deferral, a lost lock and
        a redrive. The function runs at least once: if the worker dies before the result is kept, it runs again.

        Args:
            name: of the step, unique in its message: 1 to 200 characters, at most 1000 steps.
            function: what the step does; its result is kept as JSON.
            *args: what it is called with.
            returns: the type of the result, for what is more than JSON: a pydantic model, a dataclass, `list[Order]`.
            transaction: call `function(conn, *args, **named)`, and keep the result in the transaction of that connection: what is done on
                it happens exactly once. Inside of `ctx.transaction()` it is that one, and the result is kept with it.
            **named: what it is called with, too.

        Raises:
            InvalidStep: the result is no JSON, has more than 1 MiB or does not fit its type, or the name was used before in this attempt.
            LockLost: the message is not this worker's any more; nothing was kept.
            RuntimeError: the handler runs with isolation = "process".
        """
        step = to_step(name, function, args, named, returns, transaction, not self.completed)
        if self._steps is None:
            self._steps = Steps(self._message, self._runtime)
        done = self._steps.run_async if is_on_event_loop() else self._steps.run_blocking
        return done(step, self.connection)  # type: ignore[arg-type]

    def publish(self, topic: str, payload: Any = None, **options: Unpack[PublishOptions]) -> Any:
        """Publish another message, as `pgrouse.publish` does; an async handler awaits it.

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

        What an async handler does not await is not published, and fails its attempt.
        """
        return ContextPublish(self._runtime, self.headers, topic, payload, options).publish(
            self.connection, self._get_tracker()
        )

    def _get_tracker(self) -> PublishTracker:
        self._tracker = self._tracker or PublishTracker()
        return self._tracker

    def transaction(self) -> Transaction:
        """Open a transaction that also completes the message: `[async] with ctx.transaction() as conn`.

        Everything done on `conn` and the completion commit together when the block ends, or not at all: effects in this database
        happen exactly once. Set `ctx.output` before the block ends to keep an output. In an async handler use `async with`.

        Raises:
            LockLost: at the end of the block, if the message is not this worker's any more; everything was rolled back.
        """
        return Transaction(self, MessageCompletion(self, self._message, self._runtime), self._runtime)


class MessageCompletion:
    """The completion of a handler's message by its transaction: see `Completion`."""

    def __init__(self, context: Context, message: Message, runtime: HandlerRuntime) -> None:
        self._context, self._message, self._runtime = context, message, runtime

    def check_open(self) -> None:
        """Make sure that the message is not completed, and has no outcome."""
        if self._context.action is not None:
            raise RuntimeError(
                f"message {self._message.id} has an outcome by ctx.ack(), ctx.nack() or ctx.reject(): "
                "use one of them or ctx.transaction(), not both"
            )
        if self._context.completed:
            raise RuntimeError(
                f"message {self._message.id} is completed already: do all its writes in one ctx.transaction()"
            )

    def messages(self) -> list[Message]:
        """Return the message."""
        return [self._message]

    def call(self) -> Call[list[int]]:
        """Return the call that completes the message with `ctx.output`."""
        output = self._context.output
        text = None if output is None else encode_output(output)
        return complete(*claim_refs([self._message]), [self._runtime.encryption.encrypt_output(self._message, text)])

    def check(self, lost: list[int]) -> None:
        """Check that the message was not lost."""
        if lost:
            raise LockLost(
                f"message {self._message.id} is not this worker's any more: everything in the transaction was rolled back"
            )

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
