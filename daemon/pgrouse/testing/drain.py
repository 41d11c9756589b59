"""Work what is ready until nothing is, in this process and now."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, overload

import psycopg
from psycopg.rows import tuple_row

from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.context import is_on_a_loop
from pgrouse.run_sync import finish
from pgrouse.handlers.handler import Handler
from pgrouse.client.message import Message
from pgrouse.handlers.outcome import Ended, Kind
from pgrouse.client.worker_client import settle_statement
from pgrouse.testing.attempt import Attempt, attempt
from pgrouse.testing.handler_call import Handlers, Play, handlers_of
from pgrouse.testing.runtime import AnyConnection, Stage

CLAIM = b"SELECT * FROM messages.claim('pgrouse.testing', %s::pg_catalog.text[], %s)"


@overload
def drain(where: psycopg.Connection[Any], handlers: Handlers, *, limit: int = 1000) -> list[Attempt]: ...


@overload
def drain(
    where: psycopg.AsyncConnection[Any], handlers: Handlers, *, limit: int = 1000
) -> Coroutine[Any, Any, list[Attempt]]: ...


@overload
def drain(where: str, handlers: Handlers, *, limit: int = 1000) -> Any: ...


def drain(
    where: str | AnyConnection, handlers: Handlers, *, limit: int = 1000
) -> list[Attempt] | Coroutine[Any, Any, list[Attempt]]:
    """Work the messages of these topics that are ready, and those that handlers publish, until none is; return all attempts in their order.

    Each is claimed and settled as a daemon does it: policies, retries, dead letters and the archive are the real ones. Delayed messages,
    and those that wait for their retry, are left: see `at`. Time-outs (`run_timeout`) are not kept, no lock is extended, and what is encrypted
    is not decrypted.

    Args:
        where: a connection of psycopg: everything happens in its transaction, which may be rolled back, and is seen by nobody else before
            it is committed; await the result on an AsyncConnection. Handlers of its kind get it by `ctx.transaction()`, the others cannot
            work in the database. Or a connection string: everything is committed, and both kinds of handlers get connections; await the
            result where an event loop runs.
        handlers: functions by topic; or a configuration or its file, with all its settings.
        limit: at most so many attempts.

    Raises:
        RuntimeError: there is more to do after `limit` attempts.
        ConfigError: a function is no handler; says why.
    """
    worked = handlers_of(handlers)
    match where:
        case psycopg.AsyncConnection():
            return _Drain(where, worked, Stage(where), limit).run()
        case psycopg.Connection():
            return finish(_Drain(where, worked, Stage(where), limit).run())
    if is_on_a_loop():
        return _connected(where, worked, limit)
    with psycopg.connect(where, autocommit=True) as conn:
        return finish(_Drain(conn, worked, Stage(conn, where), limit).run())


async def _connected(dsn: str, worked: dict[str, Handler], limit: int) -> list[Attempt]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        return await _Drain(conn, worked, Stage(conn, dsn), limit).run()


class _Drain:
    """One drain. On a blocking connection its coroutines never wait."""

    def __init__(self, conn: AnyConnection, worked: dict[str, Handler], stage: Stage, limit: int) -> None:
        self.conn, self.worked, self.stage, self.limit = conn, worked, stage, limit
        self.attempts: list[Attempt] = []

    async def run(self) -> list[Attempt]:
        while claimed := await self._claim(list(self.worked), 1):
            if len(self.attempts) >= self.limit:
                raise RuntimeError(
                    f"drain: {self.limit:,} attempts were made and there is more to do, next a message of topic {claimed[0].topic}: "
                    "does a handler publish to itself, or is the limit too low?"
                )
            await self._work(self.worked[claimed[0].topic], claimed)
        return self.attempts

    async def _work(self, worked: Handler, claimed: list[Message]) -> None:
        if worked.batching is not None and worked.batching.size > 1:
            claimed += await self._claim([worked.topic], worked.batching.size - 1)
        is_first = worked.rules.policy is AckPolicy.ACK_FIRST
        if is_first:
            await self._settle([Ended(each, Kind.COMPLETE) for each in claimed])
        play = Play(worked, claimed, self.stage)
        ended = play.ended(await self._said(play))
        if not is_first:
            await self._settle([each for each in ended if each.message.id not in self.stage.done])
        self.attempts += map(attempt, ended)

    async def _said(self, play: Play) -> object:
        return await play.said_on_the_loop() if isinstance(self.conn, psycopg.AsyncConnection) else play.said()

    async def _claim(self, topics: list[str], most: int) -> list[Message]:
        return [Message._make(row) for row in await self._rows(CLAIM, [topics, most])]

    async def _settle(self, ended: list[Ended]) -> None:
        for each in ended:
            await self._rows(*settle_statement(each.kind, [each]))

    async def _rows(self, statement: bytes, values: list[Any]) -> list[tuple[Any, ...]]:
        if isinstance(self.conn, psycopg.AsyncConnection):
            cursor = psycopg.AsyncCursor(self.conn, row_factory=tuple_row)
            return await (await cursor.execute(statement, values)).fetchall()
        return psycopg.Cursor(self.conn, row_factory=tuple_row).execute(statement, values).fetchall()
