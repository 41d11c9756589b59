"""What tells the web server that something has changed: one connection that listens, and now and then asks how far the log has come.

Notifications alone do not do: a message that a busy worker settles notifies nobody. The position of the write-ahead log moves with every change,
and reading it costs next to nothing; while it stands still nothing has to be read again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

import psycopg
import structlog

from pgrouse import events
from pgrouse.client.database import Database
from pgrouse.config.dsn import redact

log = structlog.get_logger()

# Not new_message: whoever publishes to a topic with notify = always may ring thousands of times a second.
CHANNELS = ("topic_changed", "schedule_changed", "dead_message", "cancelled")
POSITION = b"SELECT pg_current_wal_insert_lsn()::text"
ASK_EVERY_S = 0.25
ANSWER_S = 5.0
RETRY_S, LONGEST_RETRY_S = 0.25, 5.0


class Ear:
    """One connection that hears of changes, and comes back by itself when it is lost.

    Args:
        db: where.
        on_change: called when something may have changed.

    Attributes:
        hears: whether silence means that nothing has changed.
    """

    def __init__(self, db: Database, on_change: Callable[[], None]) -> None:
        self.db, self.on_change = db, on_change
        self.hears = False
        self._retry_s = RETRY_S

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError, TimeoutError) as error:
                if self.hears or self._retry_s >= LONGEST_RETRY_S:
                    log.debug(events.WEB_DATABASE_AWAY, reason=redact(" ".join(str(error).split())))
            finally:
                self.hears = False
            self.on_change()
            await asyncio.sleep(self._retry_s * (0.75 + random.random() / 2))  # noqa: S311 - so that not all come at once
            self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S)

    async def _listen(self) -> None:
        async with asyncio.timeout(2 * ANSWER_S):
            conn = await self.db.connect_listener(*CHANNELS)
        try:
            await self._follow(conn)
        finally:
            with suppress(psycopg.Error):
                await asyncio.shield(conn.close())

    async def _follow(self, conn: psycopg.AsyncConnection) -> None:
        before, moved = "", False
        while True:
            position = await _position(conn)
            # Once more when it stands still: a commit is in the log a moment before anybody sees what it did.
            if position != before or moved:
                self.on_change()
            before, moved = position, position != before
            self.hears, self._retry_s = True, RETRY_S
            async for _ in conn.notifies(timeout=ASK_EVERY_S):
                self.on_change()


async def _position(conn: psycopg.AsyncConnection) -> str:
    async with asyncio.timeout(ANSWER_S):
        row = await (await conn.execute(POSITION)).fetchone()
    return str(row[0]) if row else ""
