"""Steps of a handler (`ctx.step`): what one returned is kept by the queue, and a later attempt of its message gets that instead of doing it again.

A step's function runs at least once: whoever dies between its end and the moment when its result is kept does it again. Exactly once is only
what it does in the same database in the transaction that keeps its result.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import psycopg
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from pgrouse import jsonb
from pgrouse.run_sync import finish
from pgrouse.errors import LockLost, PublishRefused, StepRefused
from pgrouse.worker.loop import backoff_s, tell
from pgrouse.publishing.new_message import LABEL

if TYPE_CHECKING:
    from pgrouse.client.message import Message
    from pgrouse.worker.daemon_runtime import Scene

MAX_BYTES = 1024 * 1024
# The first time all of them, later that of one name: what another attempt kept meanwhile must not be done again.
KEPT = b"SELECT s.name, s.result FROM messages.kept_steps(%s, %s, %s) AS s"
KEEP = b"SELECT messages.keep_step(%s, %s, %s, %s::pg_catalog.text::pg_catalog.jsonb)"
Rows = list[tuple[Any, ...]]
Conn = psycopg.AsyncConnection[Any] | psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One step as its handler asks for it.

    Attributes:
        function: what is done if no earlier attempt kept its result, with all its arguments but the connection.
        returns: the type of its result; None = what JSON says.
        transaction: whether the function gets a connection first, whose transaction also keeps the result.
        is_kept: whether its result is of use later; not if its message is completed already.
    """

    name: str
    function: Callable[..., Any]
    returns: Any = None
    transaction: bool = False
    is_kept: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not LABEL.fullmatch(self.name):
            raise StepRefused(f"ctx.step: name {self.name!r:.250} must be a string of 1 to 200 printable characters")

    def text(self, result: Any) -> str:
        """Return a result as it is kept.

        Raises:
            StepRefused: it is no JSON, or too large.
        """
        try:
            return jsonb.encode(result, f"the result of step {self.name!r}", MAX_BYTES)
        except PublishRefused as error:
            raise StepRefused(str(error)) from error

    def result(self, text: str) -> Any:
        """Return what was kept, as its type: the same whether it was kept by this attempt or an earlier one.

        Raises:
            StepRefused: it does not fit its type.
        """
        if self.returns is None:
            return from_json(text)
        try:
            return _adapter(self.returns).validate_json(text)
        except ValidationError as error:
            raise StepRefused(
                f"the result of step {self.name!r} is no {self.returns}: {error.error_count()} problems, the first: "
                f"{error.errors(include_url=False, include_input=False)[0]['msg']}"
            ) from error


class Steps:
    """The steps of one message in one attempt."""

    def __init__(self, message: Message, scene: Scene) -> None:
        self._message, self._scene = message, scene
        self._kept: dict[str, str] = {}
        self._has_asked = False
        self._taken: set[str] = set()
        # Those whose fate is that of the handler's transaction.
        self._pending: set[str] = set()

    def on_the_loop(self, step: Step, conn: psycopg.AsyncConnection[Any] | None) -> Coroutine[Any, Any, Any]:
        """Return what awaits the result of a step; conn: that of the handler's open transaction."""
        return self._result(step, OnTheLoop(self._scene), conn)

    def in_a_thread(self, step: Step, conn: psycopg.Connection[Any] | None) -> Any:
        """Return the result of a step in a thread."""
        return finish(self._result(step, InAThread(self._scene), conn))

    def rolled_back(self) -> None:
        """The handler's transaction came to nothing, and so did the steps in it: they may be done again."""
        self._taken -= self._pending
        self._pending.clear()

    async def _result(self, step: Step, way: OnTheLoop | InAThread, conn: Conn | None) -> Any:
        self._take(step)
        try:
            text = await self._text(step, way, conn)
        except BaseException:
            self._taken.discard(step.name)
            raise
        if conn is not None:
            self._pending.add(step.name)
        return step.result(text)

    def _take(self, step: Step) -> None:
        if step.name in self._taken:
            raise StepRefused(
                f"step {step.name!r} of message {self._message.id} was done already in this attempt: "
                "give each step a name of its own, in a loop with its number"
            )
        self._taken.add(step.name)

    async def _text(self, step: Step, way: OnTheLoop | InAThread, conn: Conn | None) -> str:
        if step.is_kept and step.name not in self._kept:
            await self._look(step, way, conn)
        kept = self._kept.get(step.name)
        return await self._done(step, way, conn) if kept is None else kept

    async def _look(self, step: Step, way: OnTheLoop | InAThread, conn: Conn | None) -> None:
        """Ask what is kept, right before a step would be done: that is also the last moment to learn that the message was lost."""
        rows = await self._ask(way, conn, KEPT, [*self._claim(), step.name if self._has_asked else None])
        if not rows:
            raise LockLost(f"message {self._message.id} is not this worker's any more: step {step.name!r} was not done")
        self._kept |= {name: self._scene.opened(self._message, result) for name, result in rows if name is not None}
        self._has_asked = True

    async def _done(self, step: Step, way: OnTheLoop | InAThread, conn: Conn | None) -> str:
        if step.transaction and conn is None:
            async with way.transaction() as own:
                return await self._done(step, way, own)
        text = step.text(await way.value(step, step.function(conn) if step.transaction else step.function()))
        if step.is_kept:
            values = [*self._claim(), step.name, self._scene.output(self._message, text)]
            self._check(step, await self._ask(way, conn, KEEP, values))
        return text

    def _claim(self) -> list[Any]:
        return [self._message.id, self._message.claim_id]

    def _check(self, step: Step, rows: Rows) -> None:
        if rows != [(True,)]:
            raise LockLost(
                f"message {self._message.id} is not this worker's any more: the result of step {step.name!r} was not kept"
            )

    async def _ask(self, way: OnTheLoop | InAThread, conn: Conn | None, statement: bytes, values: list[Any]) -> Rows:
        """Ask; outside of a transaction until the database answers, or the message is lost."""
        if conn is not None:
            return await _answer(way, conn, statement, values)
        failures = 0
        while True:
            try:
                async with way.connection() as own:
                    return await _answer(way, own, statement, values)
            except psycopg.OperationalError as error:
                failures = self._failed(failures, error)
            await way.pause(backoff_s(failures))

    def _failed(self, failures: int, error: psycopg.OperationalError) -> int:
        tell("step", failures + 1, error)
        if not self._scene.holds(self._message):
            raise LockLost(f"message {self._message.id} is not this worker's any more: stop working on it") from error
        return failures + 1


class OnTheLoop:
    """How a step of an async handler asks and waits."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Lend a connection."""
        return self._scene.pool.connection()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Lend a connection for one transaction."""
        async with self.connection() as own, own.transaction():
            yield own

    async def rows(self, conn: Any, statement: bytes, values: list[Any]) -> Rows:
        """Return what a statement returns."""
        return await (await psycopg.AsyncCursor(conn).execute(statement, values)).fetchall()

    async def value(self, step: Step, result: Any) -> Any:
        """Return what a step's function returned, or what that is to be awaited for."""
        del step
        return await result if inspect.isawaitable(result) else result

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class InAThread:
    """The same for a handler in a thread: nothing here ever waits for an event loop, so that it is run to its end by hand."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.Connection[Any]]:
        """Lend a connection."""
        with self._scene.blocking_pool.connection() as own:
            yield own

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.Connection[Any]]:
        """Lend a connection for one transaction."""
        async with self.connection() as own:
            with own.transaction():
                yield own

    async def rows(self, conn: Any, statement: bytes, values: list[Any]) -> Rows:
        """Return what a statement returns."""
        return psycopg.Cursor(conn).execute(statement, values).fetchall()

    async def value(self, step: Step, result: Any) -> Any:
        """Return what a step's function returned.

        Raises:
            StepRefused: that would have to be awaited.
        """
        if inspect.iscoroutine(result):
            result.close()
            raise StepRefused(
                f"step {step.name!r}: its function is async and its handler is not: make both the one or the other"
            )
        return result

    async def pause(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop that it would hold up


async def _answer(way: OnTheLoop | InAThread, conn: Conn, statement: bytes, values: list[Any]) -> Rows:
    try:
        return await way.rows(conn, statement, values)
    except (psycopg.DataError, psycopg.errors.UniqueViolation) as error:
        raise StepRefused(f"ctx.step: {error.diag.message_primary}") from error


@lru_cache(maxsize=256)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def step_of(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    named: dict[str, Any],
    returns: Any,
    transaction: bool,
    is_kept: bool,
) -> Step:
    """Return the step with the arguments of its function; a connection goes before them."""
    return Step(name, partial(_call, function, args, named), returns, transaction, is_kept)


def _call(function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], *conn: Any) -> Any:
    return function(*conn, *args, **named)
