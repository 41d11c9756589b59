"""A connection that listens, and that is opened again when it breaks.

Daemons, deliveries of alerts, the dashboard and long polls use it.

A notification may be lost without an error. So each user polls as well, and takes a notification as nothing but a
reason to poll now.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from pgrouse.client.call import Call, run_async
from pgrouse.client.connection.database import Database, close
from pgrouse.database.database_errors import CONNECTION_ERRORS
from pgrouse.process.backoff import FailureLog

T = TypeVar("T")

# A query on the connection that has no answer by then: the connection is dead.
ANSWER_TIMEOUT_S = 5.0


def _ignore() -> None:
    pass


class ListenConnection:
    """One connection that listens to some NOTIFY channels.

    Its failures are handled and logged here; its methods raise none of them.

    Args:
        db: where.
        name: of the part that listens, for the log.
        channels: the NOTIFY channels, as they are called in the schema `messages`.
        on_connect: called each time it has begun to listen; what was sent before may have been missed.
    """

    def __init__(self, db: Database, name: str, *channels: str, on_connect: Callable[[], None] = _ignore) -> None:
        self.db, self.channels, self.on_connect = db, channels, on_connect
        self._channels = {db.schema.channel(each): each for each in channels}
        self._failures = FailureLog(name)
        self._conn: psycopg.AsyncConnection | None = None
        self._connect_at = 0.0

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection on which a notification could arrive."""
        return self._conn is not None

    async def receive(self, within_s: float) -> list[psycopg.Notify]:
        """Wait for notifications, at most this long; return those that have come.

        Without a connection this opens one and returns at once, so that the caller polls after it listens; after a
        failure it waits first.
        """
        if self._conn is None:
            await self._reconnect(within_s)
            return []
        try:
            received = [self._named(each) async for each in self._conn.notifies(timeout=within_s, stop_after=1)]
        except CONNECTION_ERRORS as error:
            await self._fail(error)
            return []
        # A connection alone is no recovery: a server may accept connections and end each of them at once.
        self._failures.recovered()
        return received

    def _named(self, received: psycopg.Notify) -> psycopg.Notify:
        """Return a notification with the name of its channel among `channels`."""
        name = self._channels.get(received.channel, received.channel)
        return received if name == received.channel else psycopg.Notify(name, received.payload, received.pid)

    async def query(self, call: Call[T]) -> T | None:
        """Make a call on the connection; None: there is no connection, or it has just broken."""
        if self._conn is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await run_async(self._conn, call)
        except CONNECTION_ERRORS as error:
            await self._fail(error)
            return None

    async def close(self) -> None:
        """Close the connection. The next `receive` opens another one."""
        conn, self._conn = self._conn, None
        await close(conn)

    async def _reconnect(self, within_s: float) -> None:
        wait_s = self._connect_at - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(min(wait_s, within_s))
        if wait_s > within_s:
            return
        try:
            self._conn = await self.db.connect_listener(*self.channels)
        except CONNECTION_ERRORS as error:
            await self._fail(error)
            return
        self.on_connect()

    async def _fail(self, error: BaseException) -> None:
        self._connect_at = time.monotonic() + self._failures.failed(error)
        await self.close()
