"""The ticker: runs the maintenance in SQL every few seconds, as pg_cron does every minute. Whoever comes first does the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import psycopg
import structlog

from pgrouse import database, events
from pgrouse.claimer import jittered
from pgrouse.store import Store

log = structlog.get_logger()

TICK_TIMEOUT_S = 60
# While messages are claimed, the marks from which claims read are moved about once a second.
LOW_WATER_S = 1.0


class Ticker:
    """Runs `messages.tick`, and in between `messages.raise_low_water`.

    Args:
        tick_s: how often to tick, in seconds, give or take a fifth.
        settled: how many attempts have been settled so far; while that stands still the marks need not move.
    """

    name = "ticker"

    def __init__(self, db: database.Database, tick_s: float, settled: Callable[[], int]) -> None:
        self.db = db
        self.tick_s = tick_s
        self.settled = settled
        self._settled_before = 0
        self._tick_at = 0.0
        self._conn: psycopg.AsyncConnection | None = None

    async def step(self) -> float:
        """Tick if it is time; else move the marks."""
        if self._conn is None:
            self._conn = await self.db.connect("ticker")
        store = Store(self._conn, self.db.worker)
        async with asyncio.timeout(TICK_TIMEOUT_S):
            if time.monotonic() >= self._tick_at:
                _tell(await store.tick(unless_within_s=self.tick_s * 0.8))
                self._tick_at = time.monotonic() + jittered(self.tick_s)
            elif self._has_settled():
                await store.raise_low_water()
        return min(LOW_WATER_S, self.tick_s)

    def _has_settled(self) -> bool:
        before, self._settled_before = self._settled_before, self.settled()
        return self._settled_before != before

    async def reset(self) -> None:
        """Close the connection."""
        conn, self._conn = self._conn, None
        await database.close(conn)


def _tell(did: dict[str, int]) -> None:
    for task, count in did.items():
        if count < 0:
            log.warning(
                events.TICK_FAILED, task=task, mend="the reason is in the server's log; the next tick tries again"
            )
