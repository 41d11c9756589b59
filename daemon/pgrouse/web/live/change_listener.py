"""Notifies the web server of changes: one connection that listens, and polls the WAL position.

Notifications are not enough: a message that a busy worker settles sends none. The position of the write-ahead log moves
with every change, and reading it is cheap; while it does not move, nothing has to be read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pgrouse.client.call import Call, value
from pgrouse.client.connection.database import Database
from pgrouse.client.connection.listening import ListenConnection

# new_message is not listened to: topics with notify = always may notify thousands of times a second.
NOTIFY_CHANNELS = ("topic_changed", "schedule_changed", "dead_message", "cancelled")
WAL_POSITION: Call[str] = Call(b"SELECT pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text", [], value)
POLL_S = 0.1


class ChangeListener:
    """Calls a function whenever something may have changed.

    Args:
        db: where.
        on_change: the function.
    """

    def __init__(self, db: Database, on_change: Callable[[], None]) -> None:
        self.on_change = on_change
        self._connection = ListenConnection(db, "web listener", *NOTIFY_CHANNELS)

    @property
    def is_listening(self) -> bool:
        """Whether it is connected: then silence means that nothing has changed."""
        return self._connection.is_connected

    async def run(self) -> None:
        """Listen until cancelled."""
        try:
            await self._watch()
        finally:
            await self._connection.close()

    async def _watch(self) -> None:
        before, moved = None, False
        while True:
            position = await _position(self._connection)
            # Once more when it stands still: a commit is in the log a moment before anybody sees what it did.
            if position != before or moved:
                self.on_change()
            before, moved = position, position != before
            if await self._connection.receive(POLL_S):
                self.on_change()
                # Notifications may arrive faster than positions can be read.
                await asyncio.sleep(POLL_S)


async def _position(connection: ListenConnection) -> str | None:
    return await connection.query(WAL_POSITION)
