"""Steps of a handler (`ctx.step`): what one returned is kept by the queue, and a later attempt of its message gets that instead of doing it again.

A step's function runs at least once: whoever dies between its end and the moment when its result is kept does it again. Exactly once is only
what it does in the same database in the transaction that keeps its result.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import psycopg
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from pgrouse import jsonb
from pgrouse.errors import LockLost, PublishRefused, StepRefused
from pgrouse.loops.loop import backoff_s, tell
from pgrouse.new_message import LABEL

if TYPE_CHECKING:
    from pgrouse.message import Message
    from pgrouse.scene import Scene

MAX_BYTES = 1024 * 1024
KEPT = b"SELECT s.name, s.result FROM messages.kept_steps(%s, %s) AS s"
KEEP = b"SELECT messages.keep_step(%s, %s, %s, %s::text::jsonb)"
Rows = list[tuple[Any, ...]]


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
        self._kept: dict[str, str] | None = None
        self._taken: set[str] = set()
        # Those whose fate is that of the handler's transaction.
        self._pending: set[str] = set()

    async def on_the_loop(self, step: Step, conn: psycopg.AsyncConnection[Any] | None) -> Any:
        """Return the result of a step; conn: that of the handler's open transaction."""
        self._take(step)
        try:
            if self._kept is None and step.is_kept:
                self._kept = self._opened(await self._ask(KEPT, self._claim(), conn))
            if (text := (self._kept or {}).get(step.name)) is None:
                text = await self._do(step, conn)
        except BaseException:
            self._taken.discard(step.name)
            raise
        return self._ended(step, text, is_pending=conn is not None)

    def in_a_thread(self, step: Step, conn: psycopg.Connection[Any] | None) -> Any:
        """Do the same in a thread."""
        self._take(step)
        try:
            if self._kept is None and step.is_kept:
                self._kept = self._opened(self._ask_blocking(KEPT, self._claim(), conn))
            if (text := (self._kept or {}).get(step.name)) is None:
                text = self._do_blocking(step, conn)
        except BaseException:
            self._taken.discard(step.name)
            raise
        return self._ended(step, text, is_pending=conn is not None)

    def rolled_back(self) -> None:
        """The handler's transaction came to nothing, and so did the steps in it: they may be done again."""
        self._taken -= self._pending
        self._pending.clear()

    def _take(self, step: Step) -> None:
        if step.name in self._taken:
            raise StepRefused(
                f"step {step.name!r} of message {self._message.id} was done already in this attempt: "
                "give each step a name of its own, in a loop with its number"
            )
        self._taken.add(step.name)

    def _ended(self, step: Step, text: str, *, is_pending: bool) -> Any:
        if is_pending:
            self._pending.add(step.name)
        return step.result(text)

    async def _do(self, step: Step, conn: psycopg.AsyncConnection[Any] | None) -> str:
        if not step.transaction:
            text = step.text(await _awaited(step.function()))
            await self._keep(step, text, conn)
        elif conn is not None:
            text = step.text(await _awaited(step.function(conn)))
            await self._keep(step, text, conn)
        else:
            async with self._scene.pool.connection() as own, own.transaction():
                text = step.text(await _awaited(step.function(own)))
                await self._keep(step, text, own)
        return text

    def _do_blocking(self, step: Step, conn: psycopg.Connection[Any] | None) -> str:
        if not step.transaction:
            text = step.text(_plain(step, step.function()))
            self._keep_blocking(step, text, conn)
        elif conn is not None:
            text = step.text(_plain(step, step.function(conn)))
            self._keep_blocking(step, text, conn)
        else:
            with self._scene.blocking_pool.connection() as own, own.transaction():
                text = step.text(_plain(step, step.function(own)))
                self._keep_blocking(step, text, own)
        return text

    async def _keep(self, step: Step, text: str, conn: psycopg.AsyncConnection[Any] | None) -> None:
        if step.is_kept:
            self._check(step, await self._ask(KEEP, self._kept_as(step, text), conn))

    def _keep_blocking(self, step: Step, text: str, conn: psycopg.Connection[Any] | None) -> None:
        if step.is_kept:
            self._check(step, self._ask_blocking(KEEP, self._kept_as(step, text), conn))

    def _claim(self) -> list[Any]:
        return [self._message.id, self._message.claim_id]

    def _kept_as(self, step: Step, text: str) -> list[Any]:
        return [*self._claim(), step.name, self._scene.output(self._message, text)]

    def _opened(self, rows: Rows) -> dict[str, str]:
        return {name: self._scene.opened(self._message, result) for name, result in rows}

    def _check(self, step: Step, rows: Rows) -> None:
        if rows != [(True,)]:
            raise LockLost(
                f"message {self._message.id} is not this worker's any more: the result of step {step.name!r} was not kept"
            )

    async def _ask(self, statement: bytes, values: list[Any], conn: psycopg.AsyncConnection[Any] | None) -> Rows:
        """Ask; outside of a transaction until the database answers, or the message is lost."""
        if conn is not None:
            return await _answer(conn, statement, values)
        failures = 0
        while True:
            try:
                async with self._scene.pool.connection() as own:
                    return await _answer(own, statement, values)
            except psycopg.OperationalError as error:
                failures = self._failed(failures, error)
            await asyncio.sleep(backoff_s(failures))

    def _ask_blocking(self, statement: bytes, values: list[Any], conn: psycopg.Connection[Any] | None) -> Rows:
        if conn is not None:
            return _answer_blocking(conn, statement, values)
        failures = 0
        while True:
            try:
                with self._scene.blocking_pool.connection() as own:
                    return _answer_blocking(own, statement, values)
            except psycopg.OperationalError as error:
                failures = self._failed(failures, error)
            time.sleep(backoff_s(failures))

    def _failed(self, failures: int, error: psycopg.OperationalError) -> int:
        tell("step", failures + 1, error)
        if not self._scene.holds(self._message):
            raise LockLost(f"message {self._message.id} is not this worker's any more: stop working on it") from error
        return failures + 1


async def _answer(conn: psycopg.AsyncConnection[Any], statement: bytes, values: list[Any]) -> Rows:
    cursor = psycopg.AsyncCursor(conn)
    try:
        return await (await cursor.execute(statement, values)).fetchall()
    except psycopg.DataError as error:
        raise StepRefused(f"ctx.step: {error.diag.message_primary}") from error


def _answer_blocking(conn: psycopg.Connection[Any], statement: bytes, values: list[Any]) -> Rows:
    cursor = psycopg.Cursor(conn)
    try:
        return cursor.execute(statement, values).fetchall()
    except psycopg.DataError as error:
        raise StepRefused(f"ctx.step: {error.diag.message_primary}") from error


async def _awaited(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


def _plain(step: Step, result: Any) -> Any:
    if inspect.iscoroutine(result):
        result.close()
        raise StepRefused(
            f"step {step.name!r}: its function is async and its handler is not: make both the one or the other"
        )
    return result


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
