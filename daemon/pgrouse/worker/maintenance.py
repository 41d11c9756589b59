"""Runs the SQL maintenance every few seconds, as pg_cron does every minute; whichever runs first does the work.

Between two ticks this loop fires each schedule at its time. It also refreshes the daemon's cache of payload schemas:
when a notification says that a topic was changed, and otherwise about once per second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

import psycopg

from pgrouse.client.call import run_async
from pgrouse.client.calls.maintenance import TickTask, tick
from pgrouse.client.calls.processing.claim import raise_low_water
from pgrouse.client.calls.schedule import fire_schedules, next_schedule_due
from pgrouse.client.connection import database
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process.backoff import jittered
from pgrouse.process.wake_event import WakeEvent
from pgrouse.worker.execution.schema_cache import SchemaCache

TICK_TIMEOUT_S = 60
# While messages are claimed, the marks from which claims read are moved about once a second.
LOW_WATER_S = 1.0
# How soon to try again if a schedule is due and was not fired, because another session holds its lock.
FIRE_RETRY_S = 0.02


class MaintenanceLoop:
    """Runs `messages.tick`, and `messages.raise_low_water` in between.

    It also fires the schedules, and refreshes the payload schemas.

    Args:
        schemas: the daemon's cache of payload schemas; None = there is none.
        topic_changed: set when a notification says that a topic or a schedule was changed.
        tick_s: how often to tick, in seconds, with a jitter of a fifth.
        settled_count: how many attempts have been settled so far; while it does not change the marks need not move.
        caller: who ticks, as the marks of the maintenance name it.
    """

    name = "maintenance"

    def __init__(
        self,
        db: database.Database,
        tick_s: float,
        settled_count: Callable[[], int],
        schemas: SchemaCache | None,
        topic_changed: WakeEvent,
        caller: str = "daemon",
    ) -> None:
        self.db, self.caller = db, caller
        self.schemas, self.topic_changed = schemas, topic_changed
        self.tick_s = tick_s
        self.settled_count = settled_count
        self._last_settled_count = 0
        self._tick_at = 0.0
        self._fire_at = 0.0
        self._conn: psycopg.AsyncConnection | None = None

    async def step(self) -> float:
        """Refresh the schemas; tick if it is time, else move the marks; fire the schedules that are due."""
        conn = await self.connection()
        async with asyncio.timeout(TICK_TIMEOUT_S):
            if self.schemas is not None:
                await self.schemas.refresh(conn)
            if time.monotonic() >= self._tick_at:
                unless_within = timedelta(seconds=self.tick_s * 0.8)
                _log_failures(await run_async(conn, tick(self.caller, unless_within=unless_within)))
                self._tick_at = time.monotonic() + jittered(self.tick_s)
            elif self._has_settled_more():
                await run_async(conn, raise_low_water())
            if time.monotonic() >= self._fire_at:
                self._fire_at = time.monotonic() + await self._fire_schedules(conn)
        if await self.topic_changed.wait(max(0.0, min(LOW_WATER_S, self.tick_s, self._fire_at - time.monotonic()))):
            self._fire_at = 0.0
        return 0

    async def _fire_schedules(self, conn: psycopg.AsyncConnection) -> float:
        """Publish the messages of due schedules; return in how many seconds to do it again."""
        await run_async(conn, fire_schedules())
        due_in = await run_async(conn, next_schedule_due())
        return self.tick_s if due_in is None else max(FIRE_RETRY_S, min(due_in.total_seconds(), self.tick_s))

    async def connection(self) -> psycopg.AsyncConnection:
        """Return the connection of this loop; a new one after a failure."""
        if self._conn is None:
            self._conn = await self.db.connect("maintenance")
        return self._conn

    def _has_settled_more(self) -> bool:
        before, self._last_settled_count = self._last_settled_count, self.settled_count()
        return self._last_settled_count != before

    async def reset(self) -> None:
        """Close the connection."""
        conn, self._conn = self._conn, None
        await database.close(conn)


def _log_failures(tasks: list[TickTask]) -> None:
    for each in tasks:
        if each.count < 0:
            log.warning(
                events.TICK_FAILED, task=each.task, fix="the reason is in the server's log; the next tick tries again"
            )
