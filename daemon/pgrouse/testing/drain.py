"""Process all ready messages, in this process and at once."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar, overload

import psycopg

from pgrouse.client.call import Call, run, run_async
from pgrouse.client.calls.claim import claim
from pgrouse.client.message import Message
from pgrouse.client.settlement import SettleKind, Settlement, settlement_call
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.call import HandlerCall, to_call
from pgrouse.handlers.event_loop import is_on_event_loop
from pgrouse.handlers.handler import Handler
from pgrouse.run_sync import run_sync
from pgrouse.testing.attempt import Attempt, attempt
from pgrouse.testing.handler_call import (
    HandlersSource,
    handlers_of,
    run_handler,
    run_handler_async,
    settlements_of,
)
from pgrouse.testing.runtime import AnyConnection, TestRuntime

WORKER = "pgrouse.testing"
T = TypeVar("T")


@overload
def drain(where: psycopg.Connection[Any], handlers: HandlersSource, *, limit: int = 1000) -> list[Attempt]: ...


@overload
def drain(
    where: psycopg.AsyncConnection[Any], handlers: HandlersSource, *, limit: int = 1000
) -> Coroutine[Any, Any, list[Attempt]]: ...


@overload
def drain(where: str, handlers: HandlersSource, *, limit: int = 1000) -> Any: ...


def drain(
    where: str | AnyConnection, handlers: HandlersSource, *, limit: int = 1000
) -> list[Attempt] | Coroutine[Any, Any, list[Attempt]]:
    """Process the ready messages of these topics, and those that handlers publish, until none is left; return all attempts in their order.

    Each is claimed and settled as a daemon does it: policies, retries, dead letters and the archive are the real ones. Delayed messages,
    and those that wait for their retry, are left: see `at`. Time-outs (`timeout`) are not kept, no lock is extended, and what is encrypted
    is not decrypted.

    Args:
        where: a connection of psycopg: everything happens in its transaction, which may be rolled back, and is not visible to others before
            it is committed; await the result on an AsyncConnection. Handlers of its kind get it by `ctx.transaction()`, the others cannot
            work in the database. Or a connection string: everything is committed, and both kinds of handlers get connections; await the
            result where an event loop runs.
        handlers: functions by topic; or a configuration or its file, with all its settings.
        limit: at most so many attempts.

    Raises:
        RuntimeError: there is more to do after `limit` attempts.
        ConfigError: a function is no handler; says why.
    """
    found = handlers_of(handlers)
    match where:
        case psycopg.AsyncConnection():
            return _Drain(where, found, TestRuntime(where), limit).run()
        case psycopg.Connection():
            return run_sync(_Drain(where, found, TestRuntime(where), limit).run())
    if is_on_event_loop():
        return _connected(where, found, limit)
    with psycopg.connect(where, autocommit=True) as conn:
        return run_sync(_Drain(conn, found, TestRuntime(conn, where), limit).run())


async def _connected(dsn: str, found: dict[str, Handler], limit: int) -> list[Attempt]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        return await _Drain(conn, found, TestRuntime(conn, dsn), limit).run()


class _Drain:
    """One call of drain(). On a blocking connection its coroutines never wait."""

    def __init__(self, conn: AnyConnection, handlers: dict[str, Handler], runtime: TestRuntime, limit: int) -> None:
        self.conn, self.handlers, self.runtime, self.limit = conn, handlers, runtime, limit
        self.attempts: list[Attempt] = []

    async def run(self) -> list[Attempt]:
        while claimed := await self._claim(list(self.handlers), 1):
            if len(self.attempts) >= self.limit:
                raise RuntimeError(
                    f"drain: {self.limit:,} attempts were made and there is more to do, next a message of topic {claimed[0].topic}: "
                    "does a handler publish to itself, or is the limit too low?"
                )
            await self._work(self.handlers[claimed[0].topic], claimed)
        return self.attempts

    async def _work(self, handler: Handler, claimed: list[Message]) -> None:
        if handler.batch_options is not None and handler.batch_options.size > 1:
            claimed += await self._claim([handler.topic], handler.batch_options.size - 1)
        is_first = handler.rules.policy is AckPolicy.ACK_FIRST
        if is_first:
            await self._settle([Settlement(each, SettleKind.COMPLETE) for each in claimed])
        call = to_call(handler, claimed, self.runtime)
        settlements = settlements_of(call, await self._run_handler(handler, call))
        if not is_first:
            await self._settle([each for each in settlements if each.message.id not in self.runtime.done])
        self.attempts += map(attempt, settlements)

    async def _run_handler(self, handler: Handler, call: HandlerCall) -> object:
        is_async = isinstance(self.conn, psycopg.AsyncConnection)
        return await run_handler_async(handler, call) if is_async else run_handler(call)

    async def _claim(self, topics: list[str], most: int) -> list[Message]:
        return await self._run(claim(WORKER, topics, most))

    async def _settle(self, ended: list[Settlement]) -> None:
        for each in ended:
            await self._run(settlement_call(each.kind, [each]))

    async def _run(self, call: Call[T]) -> T:
        return (
            await run_async(self.conn, call) if isinstance(self.conn, psycopg.AsyncConnection) else run(self.conn, call)
        )
