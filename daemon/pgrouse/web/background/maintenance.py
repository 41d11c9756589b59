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
from pgrouse.worker.maintenance import MaintenanceLoop

# How long what the user of the database may do is taken for granted; and how soon a standby is asked whether it is one
# still.
RECHECK_S = 60.0
CAN_RUN_MAINTENANCE = b"""
  SELECT current_setting('transaction_read_only') = 'off' AND bool_and(has_function_privilege(p.oid, 'EXECUTE'))
  FROM pg_catalog.pg_proc AS p
  WHERE p.pronamespace = 'messages'::regnamespace
    AND p.proname IN ('tick', 'raise_low_water', 'fire_schedules', 'next_schedule_due')"""


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
        self.loop = MaintenanceLoop(db, tick_s, settled, None, WakeEvent())
        self._can_run_until = 0.0

    async def step(self) -> float:
        """Tick, if it is time and may be done; return how long to wait."""
        if time.monotonic() >= self._can_run_until:
            if not await self._can_run():
                return RECHECK_S
            self._can_run_until = time.monotonic() + RECHECK_S
        return await self.loop.step()

    async def _can_run(self) -> bool:
        conn = await self.loop.connection()
        row = await (await conn.execute(CAN_RUN_MAINTENANCE)).fetchone()
        return bool(row and row[0])

    async def reset(self) -> None:
        """Begin with a new connection."""
        self._can_run_until = 0.0
        await self.loop.reset()
