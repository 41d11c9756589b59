"""What all handlers of one daemon share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from pgrouse.handlers.context import NOTHING, is_on_a_loop
from pgrouse.client.database import Database
from pgrouse.worker.in_flight import Hand
from pgrouse.worker.loop import backoff_s, tell
from pgrouse.client.message import Message
from pgrouse.worker.metrics_recorder import Meters, Result
from pgrouse.client.worker_client import complete_statement

if TYPE_CHECKING:
    from pgrouse.crypto.message_crypto import Seals
    from pgrouse.handlers.step import Steps

# How long the completion of messages whose handler comes after it is waited for: it takes milliseconds, on a path that is not dead.
ANSWER_S = 15.0


class Scene:
    """The surroundings of the running handlers.

    Args:
        meters: told of what ends in a transaction of its handler.
        seals: encrypts the outputs of such transactions; None = they are kept as they are.

    Attributes:
        stopping: whether the daemon wants to stop.
        pool: connections for async handlers.
        blocking_pool: connections for handlers in threads.
    """

    def __init__(self, db: Database, hand: Hand, meters: Meters, seals: Seals | None = None) -> None:
        self.stopping = False
        self.seals = seals
        self.meters = meters
        self.pool: AsyncConnectionPool = db.pool()
        self.blocking_pool: ConnectionPool = db.blocking_pool()
        self._hand = hand

    def holds(self, message: Message) -> bool:
        """Whether the message is still in this worker's hand, under this claim."""
        return self._hand.holds(message)

    def output(self, message: Message, text: str | None) -> str | None:
        """Return an output as it may be kept."""
        return text if self.seals is None else self.seals.output(message, text)

    def opened(self, message: Message, text: str) -> str:
        """Return what `output` made as it was."""
        return text if self.seals is None else self.seals.opened_output(message, text)

    def steps(self, message: Message) -> Steps:
        """Return the steps of a message that is worked."""
        from pgrouse.handlers.step import Steps  # noqa: PLC0415 - most handlers have none

        return Steps(message, self)

    def completed(self, *messages: Message) -> None:
        """Their transaction was committed: nothing is left to settle, and that their locks are gone is no loss. Any thread may say so."""
        # Whoever says so twice is counted once.
        ours = [message for message in messages if self._hand.holds(message)]
        self._hand.let_go(ours)
        self.meters.ended(ours, Result.SUCCESS)

    def cancelled(self, message: Message) -> bool:
        """Whether somebody has cancelled the message."""
        return self._hand.is_cancelled(message)

    def note_progress(self, message: Message, text: str) -> None:
        """Take in how far a handler is. Nothing is noted of a message that is not in hand any more. Any thread may say so."""
        if self._hand.holds(message):
            self._hand.progress.note(message, text)
        if not self._hand.holds(message):
            # It was let go meanwhile: nobody else would ever take the note away.
            self._hand.progress.forget(message)

    def last_progress(self, message: Message) -> str | None:
        """Return what was noted last."""
        return self._hand.progress.last(message)

    def extend(self, message: Message, lock_for: timedelta) -> Awaitable[None]:
        """Let the heartbeat extend the message's lock. On the event loop the result is awaited; anywhere else this waits for it."""
        done = self._hand.extend(message, lock_for)
        if is_on_a_loop():
            return asyncio.wrap_future(done)
        done.result()
        return NOTHING

    async def complete_first(self, messages: Sequence[Message]) -> list[int]:
        """Complete messages before their handler runs; return the ids of those that were not this worker's any more.

        Tries until the database answers.
        """
        failures = 0
        while True:
            try:
                async with asyncio.timeout(ANSWER_S), self.pool.connection() as conn:
                    cursor = await conn.execute(*complete_statement(messages, [None] * len(messages)))
                    row = await cursor.fetchone()
            except (psycopg.OperationalError, TimeoutError) as error:
                failures += 1
                tell("ack_first", failures, error)
                await asyncio.sleep(backoff_s(failures))
            else:
                lost = list(row[0]) if row else []
                gone = [message for message in messages if message.id in lost]
                self._hand.let_go(gone)
                self.meters.ended(gone, Result.LOST)
                self.completed(*messages)
                return lost

    async def __aenter__(self) -> Scene:
        await self.pool.open()
        self.blocking_pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        # Whoever still runs has been told and waited for; nobody waits for him here.
        await self.pool.close(timeout=2)
        await asyncio.to_thread(self.blocking_pool.close, timeout=2)
