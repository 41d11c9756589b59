"""The maintenance, run by the web server as a daemon runs it: workers by HTTP need no daemon for locks to expire and schedules to fire.

Whoever comes first does the work: of all daemons and web servers together the tick runs once in `worker.tick`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pgrouse.client.database import Database
from pgrouse.worker.maintenance import Ticker
from pgrouse.worker.wake_event import Signal

# How long what the user of the database may do is taken for granted; and how soon a standby is asked whether it is one still.
ASK_AGAIN_S = 60.0
MAY = b"""
  SELECT current_setting('transaction_read_only') = 'off' AND bool_and(has_function_privilege(p.oid, 'EXECUTE'))
  FROM pg_catalog.pg_proc AS p
  WHERE p.pronamespace = 'messages'::regnamespace AND p.proname IN ('tick', 'raise_low_water', 'fire_schedules', 'next_schedule_due')"""


class Maintenance:
    """A loop of the web server; see `loops.loop`. It does nothing where its user may not, or where nothing can be written.

    Args:
        db: where.
        tick_s: how often to tick, in seconds.
        settled: how many attempts have been settled here so far.
    """

    name = "ticker"

    def __init__(self, db: Database, tick_s: float, settled: Callable[[], int]) -> None:
        self.db = db
        self.ticker = Ticker(db, tick_s, settled, None, Signal())
        self._may_until = 0.0

    async def step(self) -> float:
        """Tick, if it is time and may be done; return how long to wait."""
        if time.monotonic() >= self._may_until:
            if not await self._may():
                return ASK_AGAIN_S
            self._may_until = time.monotonic() + ASK_AGAIN_S
        return await self.ticker.step()

    async def _may(self) -> bool:
        conn = await self.ticker.connection()
        row = await (await conn.execute(MAY)).fetchone()
        return bool(row and row[0])

    async def reset(self) -> None:
        """Begin with a new connection."""
        self._may_until = 0.0
        await self.ticker.reset()
