"""Batch handlers: a handler that takes a list of messages, and may say of each how it ended.

What it says of its messages is settled when it ends, all of it together; `ctx.transaction()` completes them earlier, with its effects.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast, get_args, get_origin

import structlog
from psycopg import AsyncConnection, Connection
from pydantic_core import from_json

from pgrouse import events

from pgrouse.handlers import outcome

from pgrouse.publishing import trace_context
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.config.source import KeyProblem, Problem, show_key
from pgrouse.errors import ConfigError, LockLost
from pgrouse.client.message import Message
from pgrouse.handlers.outcome import ERROR_BYTES, UNCHANGED, Acked, Defer, Ended, Fail, Kind, Outcome, Reject, Retry, as_json
from pgrouse.handlers.publish_tracker import Promised, checked
from pgrouse.client.worker_client import complete_statement
from pgrouse.handlers.transaction import Transaction

if TYPE_CHECKING:
    from pgrouse.config import config
    from pgrouse.crypto.message_crypto import Seals
    from pgrouse.handlers.handler import Handler
    from pgrouse.publishing.new_message import Options
    from pgrouse.worker.daemon_runtime import Scene

log = structlog.get_logger()

P = TypeVar("P")
NAMED = 10  # so many ids in an error; more help nobody


class Item(Generic[P]):
    """One message of a batch: `def work(items: list[Item[Order]])`.

    The first thing that is said of a message counts. Of a message of which nothing is said, what the handler returns or raises counts.

    Attributes:
        payload: the payload, validated as the annotation says.
        completed: whether `ctx.transaction()` has completed it.
    """

    __slots__ = ("_batch", "_message", "completed", "payload")

    def __init__(self, message: Message, batch: Batch) -> None:
        self._message, self._batch = message, batch
        self.payload: P
        self.completed = False

    @property
    def id(self) -> int:
        """The message's id."""
        return self._message.id

    @property
    def channel(self) -> str | None:
        """Its channel, or None."""
        return self._message.channel

    @property
    def key(self) -> str | None:
        """Its key, or None."""
        return self._message.key

    @property
    def attempt(self) -> int:
        """1 for the first; counted when the message is claimed."""
        return self._message.attempt

    @property
    def runs(self) -> int:
        """How many times it was begun, this time included. A deferral hands its attempt back, but not its run."""
        return self._message.runs

    @property
    def max_attempts(self) -> int | None:
        """How many attempts there may be; None = no limit."""
        return self._message.max_attempts

    @property
    def headers(self) -> dict[str, Any]:
        """What the publisher sent along; empty if nothing."""
        return cast("dict[str, Any]", from_json(self._message.headers)) if self._message.headers else {}

    @property
    def state(self) -> Any:
        """The checkpoint that an earlier attempt left; None if there is none."""
        return None if self._message.state is None else from_json(self._message.state)

    @property
    def settled(self) -> bool:
        """Whether something was said of it that counts, or `ctx.transaction()` has completed it."""
        return self.completed or self.id in self._batch.said

    @property
    def lost(self) -> bool:
        """Whether the message is not this worker's any more: it was cancelled, or its lock expired. What is said of it changes nothing."""
        return not self.completed and not self._batch.scene.holds(self._message)

    def complete(self, output: Any = None) -> bool:
        """It succeeded. Returns whether this counts: nothing was said of it before, and the batch is not over."""
        return self._batch.say(self, Acked(output))

    def reject(self, reason: str) -> bool:
        """It is invalid: archived as `rejected`, without another attempt. Returns whether this counts."""
        return self._batch.say(self, Reject(reason))

    def fail(self, reason: str) -> bool:
        """It failed for good. Returns whether this counts."""
        return self._batch.say(self, Fail(reason))

    def retry(
        self,
        after: timedelta | float | None = None,
        *,
        state: Any = UNCHANGED,
        reason: str = "the handler asked for a retry",
    ) -> bool:
        """It failed; try it again while attempts are left. Arguments as of `Retry`. Returns whether this counts."""
        return self._batch.say(self, Retry(after, state=state, reason=reason))

    def defer(
        self, after: timedelta | float | None = None, *, until: datetime | None = None, state: Any = UNCHANGED
    ) -> bool:
        """Nothing failed; it comes back later. Arguments as of `Defer`. Returns whether this counts."""
        return self._batch.say(self, Defer(after, until=until, state=state))


class BatchContext:
    """The second argument of a batch handler.

    Attributes:
        connection: that of the open block of `transaction()`, if there is one.
    """

    __slots__ = ("_batch", "_promised", "_since", "connection")

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.connection: AsyncConnection[Any] | Connection[Any] | None = None
        self._promised = batch.promised
        self._since = time.monotonic()

    @property
    def topic(self) -> str:
        """The topic of all its messages."""
        return self._batch.handler.topic

    @property
    def time_left_s(self) -> float | None:
        """How long the handler may still run before the shortest run_timeout of its messages ends it; None = as long as it takes."""
        limit = self._batch.limit_s
        return None if limit is None else max(0.0, self._since + limit - time.monotonic())

    @property
    def stopping(self) -> bool:
        """Whether the daemon wants to stop. A long handler does well to look, and to `defer` what it has not begun."""
        return self._batch.scene.stopping

    @property
    def completed(self) -> bool:
        """Whether `transaction()` has completed the batch."""
        return self._batch.committed

    @property
    def lost(self) -> bool:
        """Whether no message of the batch is this worker's any more."""
        return not self.completed and all(item.lost for item in self._batch.items)

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A logger that names the topic and tells how many messages the batch has."""
        return cast(
            "structlog.stdlib.BoundLogger",
            structlog.get_logger().bind(topic=self.topic, messages=len(self._batch.items), **trace_context.log_keys()),
        )

    def heartbeat(self) -> None:
        """Make sure that there is still something to do. Locks are extended without this; it is a place to stop at.

        Raises:
            LockLost: no message of the batch is this worker's any more.
        """
        if self.lost:
            raise LockLost("no message of this batch is this worker's any more: stop working on it")

    def publish(self, topic: str, payload: Any = None, **options: Unpack[Options]) -> Any:
        """Publish a message, as `ctx.publish` of other handlers does; of no trace but that of the batch. An async handler awaits it."""
        from pgrouse.handlers.context_publish import FollowUp  # noqa: PLC0415 - most handlers publish nothing

        return FollowUp(self._batch.scene, {}, topic, payload, options).publish(self.connection, self._promised)

    def transaction(self) -> Transaction:
        """Open a transaction that also completes the batch: `[async] with ctx.transaction() as conn`.

        It completes all messages of which nothing else was said, each with the output of its `complete()`. Everything done on `conn` and
        the completions commit together when the block ends, or not at all. In an async handler use `async with`.

        Raises:
            LockLost: at the end of the block, if one of them is not this worker's any more; everything was rolled back.
        """
        return BatchTransaction(self, self._batch)


class BatchTransaction(Transaction):
    """The transaction of a batch: it completes many messages, and of one that is rolled back nothing is left, no `complete()` either."""

    def __init__(self, context: BatchContext, batch: Batch) -> None:
        super().__init__(cast("Any", context), batch.messages[0], batch.scene)
        self._batch = batch
        self._completing: list[Message] = []

    async def __aenter__(self) -> AsyncConnection:
        conn = await super().__aenter__()
        self._batch.in_transaction = True
        return conn

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            return await super().__aexit__(kind, error, trace)
        finally:
            self._batch.leave_transaction()

    def __enter__(self) -> Connection:
        conn = super().__enter__()
        self._batch.in_transaction = True
        return conn

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            return super().__exit__(kind, error, trace)
        finally:
            self._batch.leave_transaction()

    def _completion(self) -> tuple[bytes, list[object]]:
        self._completing = self._batch.completing()
        keep = self._scene.output
        outputs = [keep(message, _output(message, self._batch.said.get(message.id))) for message in self._completing]
        return complete_statement(self._completing, outputs)

    def _check(self, row: tuple[list[int]] | None) -> None:
        lost = row[0] if row else []
        if lost:
            self._batch.was_undone = True
            named = ", ".join(map(str, lost[:NAMED])) + (" and others" if len(lost) > NAMED else "")
            raise LockLost(
                f"{len(lost)} of the batch's messages are not this worker's any more ({named}): everything in the transaction was rolled back"
            )

    def _committed(self) -> None:
        self._batch.complete(self._completing)

    def _refuse_a_second(self) -> None:
        if self._batch.committed:
            raise RuntimeError("this batch is completed already: do all its writes in one ctx.transaction()")


class Batch:
    """One run of a batch handler: its messages, and what is said of them. The handler may be in a thread.

    Args:
        messages: all of one topic, at least one.
        seals: says what of exceptions may be logged; all of it unless given.

    Attributes:
        items: what the handler knows of them, in the same order.
        given: what of it the handler was given: the messages whose payload fits.
        said: what was said of messages by themselves, by their ids.
        limit_s: how long it may run: the shortest run_timeout of its messages; None = as long as it takes.
        in_transaction: whether a transaction is open.
        committed: whether a transaction has completed the batch.
        promised: what the handler has published and has to await.
        was_undone: whether a transaction was rolled back because messages had been lost.
    """

    def __init__(self, handler: Handler, messages: list[Message], scene: Scene, seals: Seals | None = None) -> None:
        self.handler, self.messages, self.scene, self.seals = handler, messages, scene, seals
        self.ids = {message.id: message.claim_id for message in messages}
        self.items: list[Item[Any]] = [Item(message, self) for message in messages]
        self.given: list[Item[Any]] = []
        self.said: dict[int, BaseException] = {}
        self.limit_s = min((m.run_timeout_s for m in messages if m.run_timeout_s is not None), default=None)
        self.in_transaction = False
        self.committed = False
        self.was_undone = False
        self.promised = Promised()
        self._over = False
        self._lock = threading.Lock()

    def call(self) -> Any:
        """Call the function with what fits; of an async one this returns the coroutine. If nothing fits, `given` is empty and nothing is called."""
        self.given = [
            item for message, item in zip(self.messages, self.items, strict=True) if self._fits(message, item)
        ]
        if not self.given:
            return None
        batching = self.handler.batching
        as_items = batching is not None and batching.as_items
        listed = list(self.given) if as_items else [item.payload for item in self.given]
        if self.handler.arguments == 1:
            return self.handler.function(listed)
        return self.handler.function(listed, BatchContext(self))

    def say(self, item: Item[Any], said: BaseException) -> bool:
        """Take in what is said of one message; return whether it counts."""
        with self._lock:
            if self._over or item.settled:
                return False
            self.said[item.id] = said
            return True

    def completing(self) -> list[Message]:
        """Return what a transaction completes: the messages of which nothing else was said."""
        return [each for each in self.messages if isinstance(self.said.get(each.id), Acked | None)]

    def complete(self, messages: list[Message]) -> None:
        """These are completed in the database."""
        ids = {message.id for message in messages}
        with self._lock:
            for item in self.items:
                item.completed = item.completed or item.id in ids
            self.committed = True
        self.scene.completed(*messages)

    def begin_completed(self, lost: list[int]) -> None:
        """All messages were completed before the handler begins (ack_first), but for those that were lost: those it is not given."""
        self.messages = [message for message in self.messages if message.id not in lost]
        self.items = [item for item in self.items if item.id not in lost]
        self.complete(self.messages)

    def leave_transaction(self) -> None:
        """The transaction has ended. If it was rolled back, so was what its `complete()` calls were about."""
        with self._lock:
            self.in_transaction = False
            if not self.committed:
                self.said = {each: said for each, said in self.said.items() if not isinstance(said, Acked)}

    def conclude(self, said: object) -> list[Ended]:
        """Return how each message ended, now that the handler has returned or raised this. Those that a transaction completed are left out."""
        said = checked(self.promised, said)
        if self.committed and (reason := self._too_late(said)):
            self.tell_after_completion(reason)
        if isinstance(said, list | tuple) and len(said) == len(self.given):
            each = {item.id: one for item, one in zip(self.given, said, strict=True)}
            return self._close(lambda message: self.handler.rules.ended(message, each.get(message.id)))
        return self._close(self._rest(said))

    def died(self, error: BaseException, reason: str) -> list[Ended]:
        """Return how each message ended: the process of the handler died, and nobody knows what it said."""
        hinted = self._hinted(reason)
        if self.committed:
            self.tell_after_completion(hinted)
        return self._close(lambda message: self.handler.rules.failed(message, error, hinted))

    def timed_out(self) -> list[Ended]:
        """Return how each message ended: those of which nothing was said as an expired lock does."""
        error = self._hinted(f"lock_expired: the handler ran longer than its run_timeout of {self.limit_s} s")
        if self.committed:
            self.tell_after_completion(error)
        return self._close(lambda message: Ended(message, Kind.EXPIRE, error=error))

    def released(self) -> list[Ended]:
        """Return how each message ended: those of which nothing was said are handed back."""
        return self._close(_release)

    def _fits(self, message: Message, item: Item[Any]) -> bool:
        try:
            item.payload = self.handler.decode(message)
        except Exception as error:  # noqa: BLE001 - a validator of the user's may raise anything: it is about this message alone
            if not self.say(item, error):
                self.tell_after_completion(str(error) if self.seals is None else self.seals.described(message, error))
            return False
        return True

    def _rest(self, said: object) -> Callable[[Message], Ended]:
        """Return what becomes of messages of which nothing was said by itself."""
        rules = self.handler.rules
        match said:
            case None | Outcome():
                return lambda message: rules.ended(message, said)
            case LockLost() if self.was_undone:
                # It is no fault of those that were not lost.
                return _release
            case BaseException():
                return self._raised(said)
        found = f"a list of {len(said)}" if isinstance(said, list | tuple) else f"a {type(said).__name__}"
        wanted = "return None, or a list with one outcome for each"
        return self._raised(TypeError(f"the handler returned {found} for {len(self.given)} messages: {wanted}"))

    def _raised(self, error: BaseException) -> Callable[[Message], Ended]:
        if self.handler.rules.strategy is not None:
            return lambda message: self._failed(message, error)
        # Described once: a traceback takes its time.
        failed = self._failed(self.messages[0], error)
        return lambda message: replace(failed, message=message)

    def _failed(self, message: Message, error: BaseException) -> Ended:
        ended = self.handler.rules.ended(message, error)
        return ended if ended.error is None else replace(ended, error=self._hinted(ended.error))

    def _close(self, rest: Callable[[Message], Ended]) -> list[Ended]:
        """Return how each message ended; what is said from now on does not count any more."""
        with self._lock:
            self._over = True
            # A handler that is stopped in its transaction has completed nothing.
            said = {each: it for each, it in self.said.items() if not (self.in_transaction and isinstance(it, Acked))}
            open_ = [m for m, item in zip(self.messages, self.items, strict=True) if not item.completed]
        return [self._ended(m, said[m.id]) if m.id in said else rest(m) for m in open_]

    def _ended(self, message: Message, said: BaseException) -> Ended:
        rules = self.handler.rules
        return rules.ended(message, None, said) if isinstance(said, Outcome) else rules.ended(message, said)

    def _hinted(self, error: str) -> str:
        """Say that the error is not this message's alone."""
        hint = f"in a batch of {len(self.messages)}: " if len(self.messages) > 1 else ""
        return hint + error.encode()[-(ERROR_BYTES - len(hint)) :].decode("utf-8", "ignore")

    def _too_late(self, said: object) -> str | None:
        """Return what there is to log of what a handler said although its messages are completed."""
        if isinstance(said, BaseException):
            return outcome.describe(said) if self.seals is None else self.seals.described(self.messages[0], said)
        if said is None or self.handler.rules.policy is AckPolicy.ACK_FIRST:
            return None
        return "it returned something: use complete() of the items in the transaction"

    def tell_after_completion(self, reason: str) -> None:
        """Log what changes nothing any more."""
        log.warning(
            events.MESSAGE_ENDED_AFTER_COMPLETION,
            message_id=self.messages[0].id,
            topic=self.handler.topic,
            messages=len(self.messages),
            reason=reason,
        )


@dataclass(frozen=True, slots=True)
class Batching:
    """How the messages of a batch handler are gathered.

    Attributes:
        size: at most so many at once.
        wait_s: how long the first one waits for more; 0 = not at all.
        as_items: whether the handler wants `Item`s rather than payloads.
    """

    size: int
    wait_s: float
    as_items: bool


def batching_of(chosen: config.Topic, arguments: int, wanted: Any) -> tuple[Batching | None, Any]:
    """Return how the messages of a topic are gathered, and the type of one payload.

    Args:
        chosen: what the configuration says of the topic.
        arguments: how many its handler takes.
        wanted: the annotation of the first one; Any if it has none.

    Raises:
        ConfigError: the handler does not take lists, but shall; or takes lists of items, but shall not.
    """
    is_list, element = _element(wanted)
    as_items = element is Item or get_origin(element) is Item
    if chosen.batch is None:
        if as_items:
            raise ConfigError(f"{chosen.handler} takes a list of Items, which only batches have: add batch = 100, say")
        return None, wanted
    if not arguments or not is_list:
        raise KeyProblem("batch", _no_list(chosen, wanted if arguments else None))
    if chosen.ack_policy == "manual" and not as_items:
        mend = f"with batch, let {chosen.handler} take a list[Item]"
        raise KeyProblem("ack_policy", f'"manual" needs a handler that can acknowledge: {mend}')
    if as_items:
        element = next(iter(get_args(element)), Any)
    return Batching(chosen.batch, chosen.batch_wait.total_seconds(), as_items), element


def contradictions(settings: config.Config) -> list[Problem]:
    """Return what keys about batches say against each other."""
    found = []
    most = settings.worker.fetch_batch_size
    for topic, chosen in settings.topics.items():
        if chosen.batch is None and chosen.batch_wait:
            text = "nothing is gathered without batch: add batch = 100, say, or remove it"
            found.append(_problem(settings, topic, "batch_wait", text))
        if chosen.batch is not None and chosen.batch > most:
            text = (
                f"{chosen.batch} is more than worker.fetch_batch_size, {most}, which is what one claim brings: "
                f"set that to at least {chosen.batch}, or lower batch"
            )
            found.append(_problem(settings, topic, "batch", text))
    return found


def _problem(settings: config.Config, topic: str, name: str, text: str) -> Problem:
    key = ("topics", topic, name)
    return Problem(settings.origin(*key), show_key(key), f"{show_key(key)}: {text}")


def _no_list(chosen: config.Topic, wanted: Any) -> str:
    shown = "nothing" if wanted is None else _show(wanted)
    mend = "let it take one" if wanted is None else f"annotate its first argument as list[{shown}]"
    return f"{chosen.handler} takes {shown}, but gets a list of at most {chosen.batch}: {mend}, or remove batch"


def _show(annotation: Any) -> str:
    """Write an annotation as it stands in the code, without modules: `Item[Order]`."""
    inner = ", ".join(map(_show, get_args(annotation)))
    name = getattr(get_origin(annotation) or annotation, "__name__", str(annotation))
    return f"{name}[{inner}]" if inner else name


def _element(wanted: Any) -> tuple[bool, Any]:
    """Return whether an annotation is a list (or none at all), and of what."""
    if wanted is Any:
        return True, Any
    if (get_origin(wanted) or wanted) in (list, Sequence):
        return True, next(iter(get_args(wanted)), Any)
    return False, None


def _release(message: Message) -> Ended:
    return Ended(message, Kind.RELEASE, ran=True)


def _output(message: Message, said: BaseException | None) -> str | None:
    if not isinstance(said, Acked) or said.output is None:
        return None
    try:
        return as_json(said.output)
    except ValueError as error:
        raise ValueError(f"the output of message {message.id} cannot be kept: {error}") from error
