"""The ticker: runs the maintenance in SQL every few seconds, as pg_cron does every minute. Whoever comes first does the work.

In between it fires the schedules, each at its time. It also keeps the daemon's copy of the topics' schemas: read when somebody says that a topic was changed, and else about once a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import psycopg
import structlog

from pgrouse import events

from pgrouse.client import database
from pgrouse.worker.claim_planner import jittered
from pgrouse.worker.wake_event import Signal
from pgrouse.client.worker_client import Store
from pgrouse.worker.schema_cache import TopicSchemas

log = structlog.get_logger()

TICK_TIMEOUT_S = 60
# While messages are claimed, the marks from which claims read are moved about once a second.
LOW_WATER_S = 1.0
# What is due and was not fired is in the hands of somebody else at this moment: how soon to look again.
FIRE_AGAIN_S = 0.02


class Ticker:
    """Runs `messages.tick`, and in between `messages.raise_low_water`, fires the schedules, and reads the topics' schemas.

    Args:
        schemas: the daemon's copy of the topics' payload schemas; None = there is none.
        changed: set when somebody says that a topic or a schedule was changed.
        tick_s: how often to tick, in seconds, give or take a fifth.
        settled: how many attempts have been settled so far; while that stands still the marks need not move.
    """

    name = "ticker"

    def __init__(
        self,
        db: database.Database,
        tick_s: float,
        settled: Callable[[], int],
        schemas: TopicSchemas | None,
        changed: Signal,
    ) -> None:
        self.db = db
        self.schemas, self.changed = schemas, changed
        self.tick_s = tick_s
        self.settled = settled
        self._settled_before = 0
        self._tick_at = 0.0
        self._fire_at = 0.0
        self._conn: psycopg.AsyncConnection | None = None

    async def step(self) -> float:
        """Read the schemas; tick if it is time, else move the marks; fire the schedules that are due."""
        conn = await self.connection()
        store = Store(conn, self.db.worker)
        async with asyncio.timeout(TICK_TIMEOUT_S):
            if self.schemas is not None:
                await self.schemas.read(conn)
            if time.monotonic() >= self._tick_at:
                _tell(await store.tick(unless_within_s=self.tick_s * 0.8))
                self._tick_at = time.monotonic() + jittered(self.tick_s)
            elif self._has_settled():
                await store.raise_low_water()
            if time.monotonic() >= self._fire_at:
                due_s = await store.fire_schedules()
                self._fire_at = time.monotonic() + max(FIRE_AGAIN_S, min(due_s, self.tick_s))
        if await self.changed.wait(max(0.0, min(LOW_WATER_S, self.tick_s, self._fire_at - time.monotonic()))):
            self._fire_at = 0.0
        return 0

    async def connection(self) -> psycopg.AsyncConnection:
        """Return the connection of this loop; a new one after a failure."""
        if self._conn is None:
            self._conn = await self.db.connect("ticker")
        return self._conn

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
