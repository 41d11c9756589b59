"""Who waits for messages over HTTP: one connection listens for all of them, one look a second asks for all of them.

It is armed as a daemon is, so that a publish rings; what rings was missed costs one look. Nothing runs while nobody waits.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from secrets import token_hex

import psycopg
import structlog

from pgrouse import events
from pgrouse.database import close
from pgrouse.web.database import Database
from pgrouse.web.problem import Problem

log = structlog.get_logger()

LOOK_S = 1.0
MOST_WAITING = 1000
READY = b"""
    SELECT t.topic FROM unnest(%s::text[]) AS t (topic)
    WHERE messages.next_due(ARRAY[t.topic]) <= '0'"""


class Waiter:
    """One request that waits.

    Attributes:
        topics: what it wants.
        rung: set when one of them may have something.
    """

    def __init__(self, topics: list[str]) -> None:
        self.topics = frozenset(topics)
        self.rung = asyncio.Event()


class Wake:
    """Wakes the requests of one web server that wait for messages.

    Args:
        db: the pool, and how to connect.
    """

    def __init__(self, db: Database) -> None:
        self.db = db
        self.name = f"web:{socket.gethostname()}:{os.getpid()}:{token_hex(2)}"
        self._waiters: set[Waiter] = set()
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def waiting(self, topics: list[str]) -> AsyncIterator[Waiter]:
        """Enter a request that waits for these topics.

        Raises:
            Problem: 503, too many wait.
        """
        if len(self._waiters) >= MOST_WAITING:
            raise Problem(
                503, "too many requests wait for messages: try again", "too_many_waiting", {"Retry-After": "1"}
            )
        waiter = Waiter(topics)
        self._waiters.add(waiter)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="wake")
        try:
            yield waiter
        finally:
            self._waiters.discard(waiter)

    def ring_all(self) -> None:
        """Let every request look now: something may have come, or the server stops."""
        for waiter in self._waiters:
            waiter.rung.set()

    async def close(self) -> None:
        """End the task."""
        self.ring_all()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        """Listen and look while somebody waits. A database that is away is tried again with every look."""
        while self._waiters:
            try:
                conn = await self.db.connecting.connect_listener()
            except psycopg.Error as error:
                log.debug(events.WEB_DATABASE_AWAY, reason=" ".join(str(error).split()))
                await asyncio.sleep(LOOK_S)
                continue
            try:
                with suppress(psycopg.Error):
                    await self._serve(conn)
            finally:
                await close(conn)

    async def _serve(self, conn: psycopg.AsyncConnection) -> None:
        await conn.execute(b"LISTEN new_message")
        try:
            while self._waiters:
                # Which message it was is not asked: the look finds out, once for all that have rung.
                await self._look()
                async for _ in conn.notifies(timeout=LOOK_S, stop_after=1):
                    pass
                async for _ in conn.notifies(timeout=0):
                    pass
        finally:
            with suppress(psycopg.Error):
                async with self.db.connection() as pooled:
                    await pooled.execute(b"SELECT messages.worker_stopped(%s)", [self.name])

    async def _look(self) -> None:
        """Say until when rings are wanted, and wake those for whom something is there."""
        topics = sorted({topic for waiter in self._waiters for topic in waiter.topics})
        with suppress(psycopg.Error):
            async with self.db.connection() as conn:
                await conn.execute(
                    b"SELECT messages.arm(%s, %s, %s * interval '1 second')", [self.name, topics, LOOK_S]
                )
                found = {row["topic"] for row in await (await conn.execute(READY, [topics])).fetchall()}
            for waiter in self._waiters:
                if waiter.topics & found:
                    waiter.rung.set()
