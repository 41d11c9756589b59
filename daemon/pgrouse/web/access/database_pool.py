"""The connections of the web server: a pool that comes back when the database does, and two kinds of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import psycopg
from fastapi import Request
from psycopg import AsyncConnection, sql
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from pgrouse.client.call import Call, run_async
from pgrouse.client.connection import pooler
from pgrouse.client.connection.database import Database as DatabaseConnector
from pgrouse.client.connection.pooled import FAILURES, AsyncPoolConnection
from pgrouse.config.config import Config
from pgrouse.database import connection_schema, session_settings
from pgrouse.process.backoff import FailureLog
from pgrouse.process.owner import OwnerProcess
from pgrouse.web.access.caller import Caller

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
R = TypeVar("R", bound="DataclassInstance")
Row = dict[str, Any]
Connection = AsyncConnection[Row]

# How long a request waits for a connection: the pool is busy, or the database is away.
WAIT_S = 3.0
# The same once it is known that the database is away: a new connection takes less, and a page should not seem to hang.
AWAY_WAIT_S = 0.3
# The maximum number of requests that wait for a connection.
MAX_WAITING = 500
# The pool waits longer and longer from try to try, until so long; then the next request begins again.
RECONNECT_S = 1.0
# What a transaction may take beyond twice the time of a statement.
GRACE_S = 5.0
SETTINGS = sql.SQL(session_settings.LOCAL.decode())


async def read_rows(conn: Connection, call: Call[list[R]]) -> list[Row]:
    """Make a call that returns rows, and return each as a dict, as a page or a response has it."""
    return [asdict(each) for each in await run_async(conn, call)]


def reading(request: Request) -> AbstractAsyncContextManager[Connection]:
    """Lend a connection in a transaction that only reads."""
    lent: AbstractAsyncContextManager[Connection] = request.app.state.db.read()
    return lent


def writing(
    request: Request, caller: Caller, within: timedelta | None = None
) -> AbstractAsyncContextManager[Connection]:
    """Lend a connection in one transaction, with the caller as its actor. within: what each statement may take."""
    lent: AbstractAsyncContextManager[Connection] = request.app.state.db.write(caller, within)
    return lent


async def run_read(request: Request, call: Call[T]) -> T:
    """Make one call in a transaction that only reads."""
    async with reading(request) as conn:
        return await run_async(conn, call)


async def run_write(request: Request, caller: Caller, call: Call[T]) -> T:
    """Make one call in a transaction of its own, with the caller as its actor."""
    async with writing(request, caller) as conn:
        return await run_async(conn, call)


class DatabasePool:
    """The pool of one web server.

    `async with db.read() as conn` and `async with db.write(caller) as conn`, rows as dicts.

    Args:
        settings: sections `web` and `database`.
    """

    def __init__(self, settings: Config) -> None:
        self.statement_timeout: timedelta = settings.web.statement_timeout
        self.max_lease_s = 2 * self.statement_timeout.total_seconds() + GRACE_S
        section = settings.database
        if settings.web.dsn:
            section = section.model_copy(update={"dsn": settings.web.dsn})
        self.connector = DatabaseConnector(section, "web")
        self._check_task: asyncio.Task[None] | None = None
        self._opened: WeakSet[Connection] = WeakSet()
        self.is_away = False
        self._owner = OwnerProcess("connection pool")
        self.pool: AsyncConnectionPool[AsyncPoolConnection[Row]] = AsyncConnectionPool(
            self.connector.named("web"),
            connection_class=AsyncPoolConnection[Row],
            kwargs={
                "autocommit": True,
                "prepare_threshold": self.connector.prepare,
                "row_factory": dict_row,
                FAILURES: FailureLog("web pool"),
            },
            min_size=1,
            max_size=settings.web.pool_size,
            configure=self._configure,
            max_waiting=MAX_WAITING,
            timeout=WAIT_S,
            reconnect_timeout=RECONNECT_S,
            reconnect_failed=self._set_away,
            open=False,
            name="web",
        )

    async def open(self) -> None:
        """Begin to connect; returns at once, also while the database is away."""
        self._owner = OwnerProcess("connection pool")
        await self.pool.open(wait=False)

    async def _configure(self, conn: Connection) -> None:
        """Set it up, and bound what runs outside of the transactions below.

        Behind a pooler it would stay with anyone who comes next.
        """
        self._opened.add(conn)
        answer = await conn.execute(session_settings.SET_UP, [conn.info.backend_pid], prepare=False)
        await pooler.adapt_async(connection_schema.use(conn, self.connector.schema), direct=answer.rowcount == 1)
        if answer.rowcount:
            wait_ms = round(self.statement_timeout.total_seconds() * 1000)
            await conn.execute(f"SET statement_timeout = {wait_ms}".encode())

    def _set_away(self, _pool: object) -> None:
        """Remember that no new connection could be made."""
        self.is_away = True

    async def close(self) -> None:
        """Close all connections."""
        if self._check_task is not None:
            self._check_task.cancel()
        try:
            await self.pool.close(timeout=2)
        except asyncio.CancelledError:
            # At the end of an event loop the pool's own tasks are cancelled too, and it closes nothing.
            for conn in list(self._opened):
                await conn.close()
            raise

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend an autocommit connection. If it turns out dead, the others of the pool are looked at too."""
        self._owner.check()
        async with self.pool.connection(AWAY_WAIT_S if self.is_away else WAIT_S) as conn:
            # It may also be full, for new connections only.
            self.is_away = False
            try:
                # Also where a proxy keeps the socket alive and nothing comes any more.
                async with asyncio.timeout(self.max_lease_s):
                    yield conn
            except TimeoutError as error:
                await conn.close()
                raise psycopg.OperationalError("no answer of the database in time") from error
            finally:
                if conn.closed or conn.broken:
                    self._start_check()

    def _start_check(self) -> None:
        """Replace other connections that failed for the same reason; no request waits for them."""
        if self._check_task is None or self._check_task.done():
            self._check_task = asyncio.create_task(self._check(), name="check")

    async def _check(self) -> None:
        with suppress(psycopg.Error, TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await self.pool.check()

    @asynccontextmanager
    async def read(self, within: timedelta | None = None) -> AsyncIterator[Connection]:
        """Lend a connection in a transaction that only reads, all of it of one moment.

        Args:
            within: what each statement may take; `web.statement_timeout` unless given.
        """
        async with self._transaction(self._begin(" ISOLATION LEVEL REPEATABLE READ READ ONLY", within)) as conn:
            yield conn

    @asynccontextmanager
    async def write(self, caller: Caller, within: timedelta | None = None) -> AsyncIterator[Connection]:
        """Lend a connection in one transaction, committed at the end of the block.

        The audit knows the caller as its actor.
        """
        actor = sql.SQL("; SELECT pg_catalog.set_config('messages.actor', {}, true)").format(sql.Literal(caller.name))
        async with self._transaction(self._begin("", within) + actor) as conn:
            yield conn

    def _begin(self, mode: str, within: timedelta | None) -> sql.Composed:
        wait_ms = max(1, round((within or self.statement_timeout).total_seconds() * 1000))
        # To compile a query costs more than any query of a page does.
        begin = sql.SQL("BEGIN{}; {}; SET LOCAL statement_timeout = {}; SET LOCAL jit = off")
        return begin.format(sql.SQL(mode), SETTINGS, sql.Literal(wait_ms))

    @asynccontextmanager
    async def _transaction(self, begin: sql.Composed) -> AsyncIterator[Connection]:
        async with self.connection() as conn:
            await conn.execute(begin, prepare=False)
            try:
                yield conn
            except BaseException:
                await _roll_back(conn)
                raise
            # A caller that only tried has rolled back already.
            if conn.info.transaction_status is not TransactionStatus.IDLE:
                await conn.execute(b"COMMIT")


async def _roll_back(conn: Connection) -> None:
    if conn.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        with suppress(psycopg.Error):
            await conn.execute(b"ROLLBACK")
            return
    elif conn.info.transaction_status is TransactionStatus.IDLE:
        return
    await conn.close()  # during a statement that no request waits for any more
