"""What all handlers of one daemon share."""

from __future__ import annotations

import asyncio

from psycopg_pool import AsyncConnectionPool, ConnectionPool

from pgrouse.database import Database
from pgrouse.hand import Hand
from pgrouse.message import Message


class Scene:
    """The surroundings of the running handlers.

    Attributes:
        stopping: whether the daemon wants to stop.
        pool: connections for async handlers.
        blocking_pool: connections for handlers in threads.
    """

    def __init__(self, db: Database, hand: Hand) -> None:
        self.stopping = False
        self.pool: AsyncConnectionPool = db.pool()
        self.blocking_pool: ConnectionPool = db.blocking_pool()
        self._hand = hand

    def holds(self, message: Message) -> bool:
        """Whether the message is still in this worker's hand, under this claim."""
        return self._hand.holds(message)

    def completed(self, message: Message) -> None:
        """Its transaction was committed: nothing is left to settle, and that its lock is gone is no loss. Any thread may say so."""
        self._hand.let_go([message])

    async def __aenter__(self) -> Scene:
        await self.pool.open()
        self.blocking_pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        # Whoever still runs has been told and waited for; nobody waits for him here.
        await self.pool.close(timeout=2)
        await asyncio.to_thread(self.blocking_pool.close, timeout=2)
