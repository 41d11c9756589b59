"""Tells the web server that something has changed: one connection that listens, and polls the WAL position.

Notifications are not enough: a message that a busy worker settles sends none. The position of the write-ahead log moves with every change,
and reading it is cheap; while it does not move, nothing has to be read again.
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

# Not new_message: topics with notify = always may notify thousands of times a second.
NOTIFY_CHANNELS = ("topic_changed", "schedule_changed", "dead_message", "cancelled")
WAL_POSITION = b"SELECT pg_current_wal_insert_lsn()::text"
POLL_S = 0.25
ANSWER_S = 5.0
RETRY_S, MAX_RETRY_S = 0.25, 5.0


class ChangeListener:
    """One listening connection that reconnects by itself.

    Args:
        db: where.
        on_change: called when something may have changed.

    Attributes:
        is_listening: whether it is connected: then silence means that nothing has changed.
    """

    def __init__(self, db: Database, on_change: Callable[[], None]) -> None:
        self.db, self.on_change = db, on_change
        self.is_listening = False
        self._retry_s = RETRY_S

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError, TimeoutError) as error:
                if self.is_listening or self._retry_s >= MAX_RETRY_S:
                    log.debug(events.WEB_DATABASE_UNREACHABLE, reason=redact(" ".join(str(error).split())))
            finally:
                self.is_listening = False
            self.on_change()
            await asyncio.sleep(self._retry_s * (0.75 + random.random() / 2))  # noqa: S311 - so that not all come at once
            self._retry_s = min(2 * self._retry_s, MAX_RETRY_S)

    async def _listen(self) -> None:
        async with asyncio.timeout(2 * ANSWER_S):
            conn = await self.db.connect_listener(*NOTIFY_CHANNELS)
        try:
            await self._watch(conn)
        finally:
            with suppress(psycopg.Error):
                await asyncio.shield(conn.close())

    async def _watch(self, conn: psycopg.AsyncConnection) -> None:
        before, moved = "", False
        while True:
            position = await _position(conn)
            # Once more when it stands still: a commit is in the log a moment before anybody sees what it did.
            if position != before or moved:
                self.on_change()
            before, moved = position, position != before
            self.is_listening, self._retry_s = True, RETRY_S
            async for _ in conn.notifies(timeout=POLL_S):
                self.on_change()


async def _position(conn: psycopg.AsyncConnection) -> str:
    async with asyncio.timeout(ANSWER_S):
        row = await (await conn.execute(WAL_POSITION)).fetchone()
    return str(row[0]) if row else ""
