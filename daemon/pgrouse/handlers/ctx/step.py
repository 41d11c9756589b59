"""Steps of a handler (`ctx.step`).

The queue keeps the result of a step, and a later attempt of the message gets that result instead of doing it again.

A step's function runs at least once: if a worker dies between its end and the saving of its result, it runs again. Only
SQL in the transaction that keeps the result, in the same database, takes effect exactly once.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import psycopg

from pgrouse.client.call import Call, run, run_async
from pgrouse.client.calls.processing.run import load_steps, save_step
from pgrouse.client.message import Message
from pgrouse.database.run_sync import run_sync
from pgrouse.errors import InvalidMessage, InvalidStep, LockLost
from pgrouse.handlers.ctx import step_transaction
from pgrouse.handlers.ctx.publish_tracker import PublishTracker
from pgrouse.handlers.return_type import ReturnType, find_return_type
from pgrouse.handlers.runtime import AsyncPool, BlockingPool, HandlerRuntime
from pgrouse.process.backoff import FailureLog, backoff_s
from pgrouse.publishing.new_message import LABEL
from pgrouse.values import jsonb

MAX_BYTES = 1024 * 1024
T = TypeVar("T")
Conn = psycopg.AsyncConnection[Any] | psycopg.Connection[Any]
# Returns the connection of the transaction that is open at the call. It is called when the work begins, not when a
# coroutine is created.
FindConnection = Callable[[], Conn | None]
# One log for all handlers: an outage is one event.
_failures = FailureLog("step")


@dataclass(frozen=True, slots=True)
class Step:
    """One step, as its handler asks for it.

    Attributes:
        function: does the step if no earlier attempt kept its result; it has all its arguments but the connection.
        returns: the type of its result.
        transaction: whether the function gets a connection first, whose transaction also keeps the result.
        is_saved: whether its result is of use later; it is not if the message is completed already.
    """

    name: str
    function: Callable[..., Any]
    returns: ReturnType
    transaction: bool = False
    is_saved: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not LABEL.fullmatch(self.name):
            raise InvalidStep(f"ctx.step: name {self.name!r:.250} must be a string of 1 to 200 printable characters")

    def text(self, result: Any) -> str:
        """Return a result in the form in which it is kept.

        Raises:
            InvalidStep: it is not JSON, or too large.
        """
        try:
            return jsonb.encode(result, f"the result of step {self.name!r}", MAX_BYTES)
        except InvalidMessage as error:
            raise InvalidStep(str(error)) from error

    def result(self, text: str) -> Any:
        """Return a kept result in its type: the same whether this attempt or an earlier one kept it.

        Raises:
            InvalidStep: it does not match its type.
        """
        try:
            return self.returns.read(text)
        except ValueError as error:
            raise InvalidStep(
                f"the result of step {self.name!r} is no {self.returns}: {error}: annotate its function with what it "
                "returns, or give returns=; if older code kept this result, give the step another name"
            ) from None


class Steps:
    """The steps of one message in one attempt."""

    def __init__(self, message: Message, runtime: HandlerRuntime, tracker: PublishTracker) -> None:
        self._message, self._runtime, self._tracker = message, runtime, tracker
        self._saved: dict[str, str] = {}
        self._is_loaded = False
        self._used_names: set[str] = set()
        # The steps that are kept only if the handler's transaction commits.
        self._pending: set[str] = set()

    @property
    def connection(self) -> Conn | None:
        """The connection of the step's transaction in which the calling code runs, if there is one."""
        found = step_transaction.find(self)
        return None if found is None else found.connection

    def run_async(self, step: Step, connection: FindConnection) -> Coroutine[Any, Any, Any]:
        """Return an awaitable of the result of a step.

        connection: returns the connection of the open transaction, if there is one.
        """
        return self._async_result(step, connection)

    def run_blocking(self, step: Step, connection: FindConnection) -> Any:
        """Return the result of a step in a thread."""
        return run_sync(self._result(step, BlockingStepConnection(self._runtime.blocking_pool), connection))

    def rolled_back(self) -> None:
        """The handler's transaction was rolled back, and with it the steps in it: they may be done again."""
        self._used_names -= self._pending
        self._pending.clear()

    async def _async_result(self, step: Step, connection: FindConnection) -> Any:
        with self._tracker.calls.add(connection()):
            return await self._result(step, AsyncStepConnection(self._runtime.pool), connection)

    async def _result(
        self, step: Step, access: AsyncStepConnection | BlockingStepConnection, connection: FindConnection
    ) -> Any:
        conn = connection()
        self._use_name(step)
        try:
            text = await self._text(step, access, conn)
        except BaseException:
            self._used_names.discard(step.name)
            raise
        if (outer := step_transaction.find(self)) is not None:
            outer.names.add(step.name)
        elif conn is not None:
            self._pending.add(step.name)
        return step.result(text)

    def _use_name(self, step: Step) -> None:
        if step.name in self._used_names:
            raise InvalidStep(
                f"step {step.name!r} of message {self._message.id} was done already in this attempt: "
                "give each step a name of its own, in a loop with its number"
            )
        self._used_names.add(step.name)

    async def _text(self, step: Step, access: AsyncStepConnection | BlockingStepConnection, conn: Conn | None) -> str:
        if step.is_saved and step.name not in self._saved:
            await self._load(step, access, conn)
        kept = self._saved.get(step.name)
        return await self._run(step, access, conn) if kept is None else kept

    async def _load(self, step: Step, access: AsyncStepConnection | BlockingStepConnection, conn: Conn | None) -> None:
        """Load the kept results, right before a step would run.

        That is also the last moment to learn that the message was lost.
        """
        # Load all steps the first time, later the step with this name: what another attempt kept in the meantime must
        # not be done again.
        call = load_steps(*self._claim(), step.name if self._is_loaded else None)
        asked_at = time.monotonic()
        steps = await self._ask(access, conn, call)
        if time.monotonic() - asked_at > self._message.lock_duration_s / 3:
            # This process, or the answer, was delayed: the message may be lost by now. Ask only once more: answers may
            # always be slow.
            steps = await self._ask(access, conn, call)
        if not steps:
            raise LockLost(f"message {self._message.id} is not this worker's any more: step {step.name!r} was not done")
        self._saved |= {
            name: self._runtime.encryption.decrypt_output(self._message, result)
            for name, result in steps
            if name and result
        }
        self._is_loaded = True

    async def _run(self, step: Step, access: AsyncStepConnection | BlockingStepConnection, conn: Conn | None) -> str:
        if step.transaction and conn is None:
            return await self._run_in_transaction(step, access)
        text = step.text(await self._value(step, access, conn))
        if step.is_saved:
            kept = cast("str", self._runtime.encryption.encrypt_output(self._message, text))
            self._check(step, await self._ask(access, conn, save_step(*self._claim(), step.name, kept)))
        return text

    async def _value(self, step: Step, access: AsyncStepConnection | BlockingStepConnection, conn: Conn | None) -> Any:
        """Return what the function returned, or fail if it did not await a call.

        A later attempt would not make that call either.
        """
        with self._tracker.step() as tracker:
            value = await access.value(step, step.function(conn) if step.transaction else step.function())
            tracker.raise_if_not_awaited()
            return value

    async def _run_in_transaction(self, step: Step, access: AsyncStepConnection | BlockingStepConnection) -> str:
        names: set[str] = set()
        try:
            async with access.transaction() as own:
                with step_transaction.opened(self, own) as transaction:
                    names = transaction.names
                    async with access.block(self._tracker, own):
                        return await self._run(step, access, own)
        except BaseException:
            # The transaction was rolled back, and with it the steps in it: they may be done again.
            self._used_names -= names
            raise

    def _claim(self) -> tuple[int, int]:
        return self._message.id, self._message.claim_id

    def _check(self, step: Step, is_saved: bool) -> None:
        if not is_saved:
            raise LockLost(
                f"message {self._message.id} is not this worker's any more: "
                f"the result of step {step.name!r} was not kept"
            )

    async def _ask(self, access: AsyncStepConnection | BlockingStepConnection, conn: Conn | None, call: Call[T]) -> T:
        return await ask(self._message, self._runtime, access, conn, call)


class AsyncStepConnection:
    """How a step of an async handler asks and waits."""

    def __init__(self, pool: AsyncPool) -> None:
        self._pool = pool

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Lend a connection."""
        return self._pool.connection()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Lend a connection for one transaction."""
        async with self.connection() as own, own.transaction():
            yield own

    def block(self, tracker: PublishTracker, own: Any) -> AbstractAsyncContextManager[None]:
        """Return the block of a transaction, which ends after all calls in it."""
        return tracker.transaction(own)

    async def run(self, conn: Any, call: Call[T]) -> T:
        """Make a call."""
        return await run_async(conn, call)

    async def value(self, step: Step, result: Any) -> Any:
        """Return what a step's function returned, or await it first."""
        del step
        return await result if inspect.isawaitable(result) else result

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class BlockingStepConnection:
    """The same for a handler in a thread. No method waits for an event loop, so `run_sync` runs it to its end."""

    def __init__(self, pool: BlockingPool) -> None:
        self._pool = pool

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.Connection[Any]]:
        """Lend a connection."""
        with self._pool.connection() as own:
            yield own

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.Connection[Any]]:
        """Lend a connection for one transaction."""
        async with self.connection() as own:
            with own.transaction():
                yield own

    def block(self, tracker: PublishTracker, own: Any) -> AbstractAsyncContextManager[None]:
        """Return the block of a transaction. A call in it has ended when it returns."""
        del tracker, own
        return nullcontext()

    async def run(self, conn: Any, call: Call[T]) -> T:
        """Make a call."""
        return run(conn, call)

    async def value(self, step: Step, result: Any) -> Any:
        """Return what a step's function returned.

        Raises:
            InvalidStep: the value must be awaited.
        """
        if inspect.iscoroutine(result):
            result.close()
            raise InvalidStep(
                f"step {step.name!r}: its function is async and its handler is not: make both the one or the other"
            )
        return result

    async def pause(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop that it would hold up


async def ask(
    message: Message,
    runtime: HandlerRuntime,
    access: AsyncStepConnection | BlockingStepConnection,
    conn: Conn | None,
    call: Call[T],
) -> T:
    """Make a call about a message that this worker holds.

    It is made on an open transaction, or until the database answers or the message is lost.
    """
    if conn is not None:
        return await _answer(access, conn, call)
    failures = 0
    while True:
        try:
            async with access.connection() as own:
                answer = await _answer(access, own, call)
        except psycopg.OperationalError as error:
            failures += 1
            _failures.failed(error)
            _check_held(message, runtime, error)
        else:
            _failures.recovered()
            return answer
        await access.pause(backoff_s(failures))


def _check_held(message: Message, runtime: HandlerRuntime, error: psycopg.OperationalError) -> None:
    if not runtime.holds(message):
        raise LockLost(f"message {message.id} is not this worker's any more: stop working on it") from error


async def _answer(access: AsyncStepConnection | BlockingStepConnection, conn: Conn, call: Call[T]) -> T:
    try:
        return await access.run(conn, call)
    except (psycopg.DataError, psycopg.errors.UniqueViolation) as error:
        raise InvalidStep(f"ctx.step: {error.diag.message_primary}") from error


def to_step(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    named: dict[str, Any],
    returns: Any,
    transaction: bool,
    is_saved: bool,
) -> Step:
    """Return the step with the arguments of its function; a connection comes before them.

    returns: the type of its result; None = the one in the annotation of the function.

    Raises:
        InvalidStep: the annotation cannot be read, or pydantic cannot validate the type.
    """
    try:
        kind = find_return_type(function) if returns is None else ReturnType(returns)
    except TypeError as error:
        raise InvalidStep(f"ctx.step: {error}, or give returns=") from None
    return Step(name, partial(_call, function, args, named), kind, transaction, is_saved)


def _call(function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], *conn: Any) -> Any:
    return function(*conn, *args, **named)
