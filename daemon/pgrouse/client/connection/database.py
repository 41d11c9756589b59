"""Connections to PostgreSQL: what every one of them has in common, and the pools that handlers draw from."""

from __future__ import annotations

import asyncio
import select
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import AsyncConnection, Connection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from pgrouse.client.connection import pooler
from pgrouse.client.connection.closed_after import closed_after
from pgrouse.client.connection.pooled import FAILURES, AsyncPoolConnection, PoolConnection
from pgrouse.database import connection_schema, search_path, session_settings
from pgrouse.database.schema_name import schema_name
from pgrouse.errors import ConfigError, DatabaseUnreachable
from pgrouse.process.backoff import FailureLog

if TYPE_CHECKING:
    import pgrouse.config.config as config  # noqa: PLR0402


# A dead peer is noticed after 25 s while idle and 15 s while something is unacknowledged. A DSN may say otherwise.
DEFAULTS: dict[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15000,
    # With several hosts in the DSN this finds the primary; on one host it refuses a standby, where nothing could be
    # claimed.
    "target_session_attrs": "primary",
    "client_encoding": "utf8",
}
# Errors about a message that the server cannot return have none of these classes: they are about the connection, a
# lock, the schema, rights.
NOT_CAUSED_BY_MESSAGE = ("08", "0A", "25", "28", "3D", "3F", "40", "42", "53", "55", "57")
# Where the server says that it has no memory for more locks: any role that may connect can take all of that.
SHARED_MEMORY = ("lock.c", "predicate.c")
# What a start asks takes milliseconds. What blocks it (a migration) takes longer, and a stop must not wait for that.
START_S = 30.0
SET_TIMEOUTS = b"""
    SELECT pg_catalog.set_config('lock_timeout', '2s', false), pg_catalog.set_config('statement_timeout', '10s', false)
    WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %s
"""


class Database:
    """Opens connections for one worker.

    Args:
        settings: the section `[database]` of the configuration.
        worker: the worker's name, shown as application_name together with the role of each connection.

    Attributes:
        schema: that of the queue; every connection is one to it.
        opened: how many connections were opened, by role; those of the pools apart.
    """

    def __init__(self, settings: config.DatabaseSettings, worker: str) -> None:
        self.settings = settings
        self.schema = schema_name(settings.schema)
        self.worker = worker
        self.opened: Counter[str] = Counter()
        self._handler_pools = FailureLog("handler pool")
        self.conninfo = self._conninfo(settings.dsn)
        self.listen_conninfo = self._conninfo(settings.listen_dsn or settings.dsn)

    def _conninfo(self, dsn: str) -> str:
        try:
            given = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"database.dsn is not a connection string: {str(error).splitlines()[0]}") from error
        return make_conninfo("", **{**DEFAULTS, "connect_timeout": self.connect_timeout_s, **given})

    def _named(self, conninfo: str, role: str) -> str:
        # 63 bytes are all that PostgreSQL shows.
        return make_conninfo(conninfo, application_name=f"pgrouse {role} {self.worker}"[:63])

    def named(self, role: str) -> str:
        """Return the connection string under which one part connects, for pools of its own."""
        return self._named(self.conninfo, role)

    @property
    def connect_timeout_s(self) -> int:
        """How long a connect may take, if the DSN does not say it."""
        return max(2, round(self.settings.connect_timeout.total_seconds()))

    @property
    def prepare(self) -> int | None:
        """After how many executions a statement is prepared, where no pooler would lose it; None: never."""
        return 2 if self.settings.prepare else None

    async def connect(self, role: str) -> psycopg.AsyncConnection:
        """Open an autocommit connection for one loop, with the settings of pgrouse."""
        self.opened[role] += 1
        conn = await psycopg.AsyncConnection.connect(
            self._named(self.conninfo, role), autocommit=True, prepare_threshold=self.prepare
        )
        await self._begin(conn, self._set_up(conn))
        return connection_schema.use(conn, self.schema)

    async def connect_listener(self, *channels: str) -> psycopg.AsyncConnection:
        """Open a connection that listens to these channels of the schema: never through a pooler, and with autocommit.

        Nothing else is done on it.

        Raises:
            TimeoutError: the server let it in, and then no answer came.
        """
        self.opened["listener"] += 1
        conn = await psycopg.AsyncConnection.connect(
            self._named(self.listen_conninfo, "listener"), autocommit=True, prepare_threshold=None
        )
        await self._begin(conn, session_settings.set_up_async(conn))
        names = (sql.Identifier(self.schema.channel(each)) for each in channels)
        await self._begin(conn, conn.execute(sql.SQL("; ").join(sql.SQL("LISTEN {}").format(each) for each in names)))
        return connection_schema.use(conn, self.schema)

    async def _begin(self, conn: psycopg.AsyncConnection, first: Awaitable[object]) -> None:
        """Execute one of the first statements. The way may have died since the login, and a dead one is silent."""
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                await first
        except BaseException:
            await close(conn)
            raise

    @staticmethod
    async def _set_up(conn: psycopg.AsyncConnection) -> None:
        answer = await conn.execute(session_settings.SET_UP, [conn.info.backend_pid], prepare=False)
        await pooler.adapt_async(conn, direct=answer.rowcount == 1)

    def connect_blocking(self, role: str) -> psycopg.Connection:
        """Open an autocommit connection for a thread, with the settings of pgrouse.

        Raises:
            DatabaseUnreachable: with the reason that libpq gave.
        """
        self.opened[role] += 1
        try:
            conn = psycopg.connect(self._named(self.conninfo, role), autocommit=True, prepare_threshold=self.prepare)
            return connection_schema.use(self._set_up_blocking(conn), self.schema)
        except psycopg.OperationalError as error:
            raise DatabaseUnreachable(f"no connection to PostgreSQL: {' '.join(str(error).split())}") from error

    @contextmanager
    def startup_connection(self) -> Iterator[psycopg.Connection]:
        """Lend the connection of a process's start, on which no wait is without a bound.

        What takes too long is to be tried again.

        Raises:
            DatabaseUnreachable: with the reason that libpq gave.
            ConfigError: a setting of the session keeps the queue from working.
        """
        with self.connect_blocking("start") as conn, closed_after(START_S, conn):
            session_settings.check(conn)
            conn.execute(SET_TIMEOUTS, [conn.info.backend_pid], prepare=False)
            with search_path.fixed(conn):
                yield conn

    def _set_up_blocking(self, conn: psycopg.Connection) -> psycopg.Connection:
        try:
            with closed_after(self.connect_timeout_s, conn):
                answer = conn.execute(session_settings.SET_UP, [conn.info.backend_pid], prepare=False)
                pooler.adapt(conn, direct=answer.rowcount == 1)
        except BaseException:
            conn.close()
            raise
        return conn

    def pool(self) -> AsyncConnectionPool:
        """Return a pool for async handlers, not yet open.

        It grows on demand and shrinks again. Their search_path is that of the role.
        """
        checks: dict[str, Any] = {"configure": self._configure_async, "check": check_idle_async}
        return AsyncConnectionPool(connection_class=AsyncPoolConnection, **checks, **self._pool_settings())

    def blocking_pool(self) -> ConnectionPool:
        """Return a pool for handlers in threads, not yet open."""
        checks: dict[str, Any] = {"configure": self._configure, "check": check_idle}
        return ConnectionPool(connection_class=PoolConnection, **checks, **self._pool_settings())

    # Handlers execute statements of their own there, which stay as they are.
    async def _configure_async(self, conn: AsyncConnection[Any]) -> None:
        await pooler.configure_async(connection_schema.remember(conn, self.schema))

    def _configure(self, conn: Connection[Any]) -> None:
        pooler.configure(connection_schema.remember(conn, self.schema))

    def _pool_settings(self) -> dict[str, Any]:
        return {
            "conninfo": self._named(self.conninfo, "handler"),
            "kwargs": {"autocommit": True, "prepare_threshold": self.prepare, FAILURES: self._handler_pools},
            "min_size": 0,
            "max_size": self.settings.pool_size,
            "open": False,
            "timeout": 30,
        }


async def close(conn: psycopg.AsyncConnection | None) -> None:
    """Close a connection that may be broken, or may not exist."""
    if conn is not None:
        await asyncio.shield(conn.close())


def may_be_caused_by_message(error: BaseException) -> bool:
    """Whether a claim may have failed because of one of its messages.

    That message is too much for the server, the connection, or the time.
    """
    if isinstance(error, psycopg.errors.OutOfMemory):
        return error.diag.source_file not in SHARED_MEMORY
    if isinstance(error, TimeoutError | psycopg.errors.QueryCanceled):
        return True
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is not None and not state.startswith(NOT_CAUSED_BY_MESSAGE)


def unclaimable_reason(error: psycopg.Error) -> str:
    """Return the reason for rejecting a message whose contents the server cannot return."""
    return f"the server cannot return its contents: {error.diag.message_primary or error} (SQLSTATE {error.sqlstate})"[
        :1000
    ]


async def check_idle_async(conn: AsyncConnection[Any]) -> None:
    """Check an idle connection, with a round trip only if the server has sent something.

    An idle connection receives nothing but its end: a server that stops or terminates it says so, and closes the
    socket. A peer that died without a word is found by neither; the timeouts of TCP end the wait for it.

    Raises:
        psycopg.OperationalError: it is at its end.
    """
    if _has_input(conn.fileno()):
        await AsyncConnectionPool.check_connection(conn)


def check_idle(conn: Connection[Any]) -> None:
    """Check as `check_idle_async` does, on a blocking connection."""
    if _has_input(conn.fileno()):
        ConnectionPool.check_connection(conn)


def _has_input(fd: int) -> bool:
    """Whether something can be read from a socket, its end included. True where the system cannot tell."""
    if not hasattr(select, "poll"):  # Windows
        return True
    socket = select.poll()
    socket.register(fd, select.POLLIN)
    return bool(socket.poll(0))
