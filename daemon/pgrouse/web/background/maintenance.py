"""The maintenance, run by the web server as a daemon runs it.

Workers by HTTP need no daemon for locks to expire and schedules to fire.

The first one to come does the work: of all daemons and web servers together the tick runs once in
`worker.maintenance_interval`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pgrouse.client.connection.database import Database
from pgrouse.process.wake_event import WakeEvent
from pgrouse.web.background.permission import RECHECK_S, may_call
from pgrouse.worker.maintenance import MaintenanceLoop

FUNCTIONS = ("tick", "raise_low_water", "fire_schedules", "next_schedule_due")


class WebMaintenance:
    """A loop of the web server; see `loops.loop`.

    It does nothing where its user may not, or where nothing can be written.

    Args:
        db: where.
        tick_s: how often to tick, in seconds.
        settled: how many attempts have been settled here so far.
    """

    name = "maintenance"

    def __init__(self, db: Database, tick_s: float, settled: Callable[[], int]) -> None:
        self.db = db
        self.loop = MaintenanceLoop(db, tick_s, settled, None, WakeEvent(), "web")
        self._can_run_until = 0.0

    async def step(self) -> float:
        """Tick, if it is time and may be done; return how long to wait."""
        if time.monotonic() >= self._can_run_until:
            if not await may_call(await self.loop.connection(), FUNCTIONS):
                return RECHECK_S
            self._can_run_until = time.monotonic() + RECHECK_S
        return await self.loop.step()

    async def reset(self) -> None:
        """Begin with a new connection."""
        self._can_run_until = 0.0
        await self.loop.reset()
