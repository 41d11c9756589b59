"""Process all ready messages, in this process and at once."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

import psycopg

from pgrouse.client.call import Call, run, run_async
from pgrouse.client.calls.processing.claim import claim
from pgrouse.client.calls.processing.settle import completion_states
from pgrouse.client.message import Message, claim_refs
from pgrouse.client.processing.settlement import SettleKind, Settlement, settlement_call
from pgrouse.database.run_sync import run_sync
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.call import HandlerCall, to_call
from pgrouse.handlers.declaration.lifespan import Lifespan
from pgrouse.handlers.event_loop import is_on_event_loop
from pgrouse.handlers.handler import Handler
from pgrouse.publishing.drivers import driver_of
from pgrouse.publishing.drivers.driver import Driver
from pgrouse.testing.attempt import Attempt, attempt
from pgrouse.testing.driver_call import run_on_driver
from pgrouse.testing.handler_call import (
    HandlersSource,
    RunCoroutine,
    completed_by,
    handlers_of,
    lifespan_of,
    run_handler,
    run_handler_async,
)
from pgrouse.testing.runtime import OtherConnection, TestConnection, TestRuntime, is_async
from pgrouse.values.topic_pattern import by_topic

if TYPE_CHECKING:
    from pgrouse.publishing.drivers.connection_types import AnyAsyncConnection, AnyBlockingConnection
    from pgrouse.testing.attempt import AttemptsHere

WORKER = "pgrouse.testing"
# How long a lifespan may take to start, and to end.
LIFESPAN_S = 60.0
T = TypeVar("T")


@overload
def drain(where: str, handlers: HandlersSource, *, resources: Any = None, limit: int = 1000) -> AttemptsHere: ...


@overload
def drain(  # type: ignore[overload-overlap]  # an async connection of SQLAlchemy has all that a blocking one has
    where: AnyAsyncConnection, handlers: HandlersSource, *, resources: Any = None, limit: int = 1000
) -> Coroutine[Any, Any, list[Attempt]]: ...


@overload
def drain(
    where: AnyBlockingConnection, handlers: HandlersSource, *, resources: Any = None, limit: int = 1000
) -> list[Attempt]: ...


def drain(where: Any, handlers: HandlersSource, *, resources: Any = None, limit: int = 1000) -> Any:
    """Process the ready messages of these topics, and those that handlers publish, until none is left.

    Return all attempts in their order.

    Each message is claimed and settled as a daemon does it: with the real policies, retries, dead letters and archive.
    Delayed messages, and messages that wait for a retry, are not processed, even if their time comes during the call:
    see `at`. Timeouts are ignored, no lock is extended, and encrypted messages are not decrypted.

    Args:
        where: a connection of a kind that `publish` takes: everything happens in its transaction, which may be rolled
            back, and others see nothing before its commit; await the result on an async connection. If it is one of
            psycopg, or has one below it, handlers of the same kind get that from `ctx.transaction()`; other handlers
            can only publish. Or a connection string: everything is committed, and both kinds of handlers get
            connections; await the result where an event loop runs.
        handlers: functions by topic; or a configuration or its file, with all its settings, including its lifespan.
        resources: the value of `ctx.resources`, instead of what the lifespan yields.
        limit: the maximum number of attempts.

    Raises:
        RuntimeError: messages remain after `limit` attempts.
        ConfigError: a function is not a handler; the text says why.
    """
    work = _Work(handlers_of(handlers), lifespan_of(handlers) if resources is None else None, resources, limit)
    if not isinstance(where, str):
        driver = driver_of(where, "drain")
        return work.run_on(driver) if driver.is_async else work.run_blocking(run_sync(_connection(driver)))
    if is_on_event_loop():
        return _connected(where, work)
    with psycopg.connect(where, autocommit=True, client_encoding="utf8") as conn:
        return work.run_blocking(conn, where)


async def _connected(dsn: str, work: _Work) -> list[Attempt]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True, client_encoding="utf8") as conn:
        return await work.run_async(conn, dsn)


async def _connection(driver: Driver) -> TestConnection:
    """Return the connection of psycopg that a driver uses; else what does the same on any driver."""
    below = await driver.below()
    conn = getattr(below, "conn", None)
    return conn if isinstance(conn, psycopg.Connection | psycopg.AsyncConnection) else OtherConnection(below)


@dataclass(frozen=True)
class _Work:
    """The common data of one call of drain()."""

    handlers: dict[str, Handler]
    lifespan: Lifespan | None
    resources: Any
    limit: int

    async def run_on(self, driver: Driver) -> list[Attempt]:
        return await self.run_async(await _connection(driver))

    async def run_async(self, conn: TestConnection, dsn: str | None = None) -> list[Attempt]:
        if self.lifespan is None:
            return await self._drain(conn, TestRuntime(conn, dsn, self.resources)).run()
        resources = await self.lifespan.start(LIFESPAN_S)
        try:
            return await self._drain(conn, TestRuntime(conn, dsn, resources)).run()
        finally:
            await self.lifespan.end(LIFESPAN_S)

    def run_blocking(self, conn: TestConnection, dsn: str | None = None) -> list[Attempt]:
        if self.lifespan is None:
            return run_sync(self._drain(conn, TestRuntime(conn, dsn, self.resources)).run())
        # Use one loop for everything: resources of the lifespan may be bound to it.
        with asyncio.Runner() as runner:
            runtime = TestRuntime(conn, dsn, runner.run(self.lifespan.start(LIFESPAN_S)))
            try:
                return run_sync(self._drain(conn, runtime, partial(_run_on, runner)).run())
            finally:
                runner.run(self.lifespan.end(LIFESPAN_S))

    def _drain(self, conn: TestConnection, runtime: TestRuntime, run_coroutine: RunCoroutine = asyncio.run) -> _Drain:
        return _Drain(conn, self.handlers, runtime, self.limit, run_coroutine)


def _run_on(runner: asyncio.Runner, coroutine: Coroutine[Any, Any, object]) -> object:
    """Run a coroutine in a copy of the current context: the runner's context would be shared by all attempts."""
    return runner.run(coroutine, context=contextvars.copy_context())


class _Drain:
    """One call of drain(). On a blocking connection its coroutines never wait."""

    def __init__(
        self,
        conn: TestConnection,
        handlers: dict[str, Handler],
        runtime: TestRuntime,
        limit: int,
        run_coroutine: RunCoroutine,
    ) -> None:
        self.conn, self.handlers, self.runtime, self.limit = conn, by_topic(handlers), runtime, limit
        self.run_coroutine = run_coroutine
        self.attempts: list[Attempt] = []
        self.waiting: set[int] = set()
        self.early: list[Message] = []

    async def run(self) -> list[Attempt]:
        while claimed := await self._claim(list(self.handlers), 1):
            if len(self.attempts) >= self.limit:
                raise RuntimeError(
                    f"drain: {self.limit:,} attempts were made and there is more to do, "
                    f"next a message of topic {claimed[0].topic}: "
                    "does a handler publish to itself, or is the limit too low?"
                )
            await self._work(self.handlers[claimed[0].topic], claimed)
        await self._settle([Settlement(each, SettleKind.RELEASE) for each in self.early])
        return self.attempts

    async def _work(self, handler: Handler, claimed: list[Message]) -> None:
        if handler.batch_options is not None and handler.batch_options.size > 1:
            claimed += await self._claim([handler.topic], handler.batch_options.size - 1)
        is_first = handler.rules.policy is AckPolicy.ACK_FIRST
        if is_first:
            await self._settle([Settlement(each, SettleKind.COMPLETE) for each in claimed])
        call = to_call(handler, claimed, self.runtime)
        settlements = await self._confirmed(call, call.to_settlements(await self._run_handler(handler, call)))
        if not is_first:
            await self._settle([each for each in settlements if each.message.id not in self.runtime.done])
        self.attempts += map(attempt, settlements)
        self.waiting |= {each.message.id for each in settlements if _waits(each)}

    async def _confirmed(self, call: HandlerCall, settlements: list[Settlement]) -> list[Settlement]:
        """Return how the attempts ended, including those that the handler has completed."""
        if completing := list(self.runtime.completing.values()):
            self.runtime.completing.clear()
            states = {each.id: each.state for each in await self._run(completion_states(*claim_refs(completing)))}
            if "open" in states.values():
                raise RuntimeError(
                    "drain: the handler has ended, and the transaction of its ctx.complete() is still open"
                )
            call.complete([each for each in completing if states[each.id] == "success"])
        return completed_by(call) + [each for each in settlements if each.message.id not in self.runtime.done]

    async def _run_handler(self, handler: Handler, call: HandlerCall) -> object:
        return await run_handler_async(handler, call) if is_async(self.conn) else run_handler(call, self.run_coroutine)

    async def _claim(self, topics: list[str], most: int) -> list[Message]:
        """Claim messages except those that this call has told to wait.

        A delay may be over at once: by default it is drawn from 0 to 1 second. The result of a test must not depend on
        it, so these messages are kept claimed until the call ends, and are released then.
        """
        while claimed := await self._claim_any(topics, most):
            self.early += [each for each in claimed if each.id in self.waiting]
            if now := [each for each in claimed if each.id not in self.waiting]:
                return now
        return []

    async def _claim_any(self, topics: list[str], most: int) -> list[Message]:
        call = claim(WORKER, topics, most)
        if not isinstance(self.conn, OtherConnection):
            return await self._run(call)
        as_text = call.statement.replace(b"f.body", b"encode(f.body, 'hex') AS body")
        return [
            each._replace(body=None if each.body is None else bytes.fromhex(str(each.body)))
            for each in await self._run(Call(as_text, call.values, call.read))
        ]

    async def _settle(self, ended: list[Settlement]) -> None:
        for each in ended:
            await self._run(settlement_call(each.kind, [each]))

    async def _run(self, call: Call[T]) -> T:
        match self.conn:
            case OtherConnection():
                return await run_on_driver(self.conn.driver, call)
            case psycopg.AsyncConnection():
                return await run_async(self.conn, call)
        return run(self.conn, call)


def _waits(ended: Settlement) -> bool:
    if ended.kind is SettleKind.RETRY:
        return ended.after != timedelta(0)  # None: its backoff
    return ended.kind is SettleKind.DEFER and bool(ended.until or ended.after)
