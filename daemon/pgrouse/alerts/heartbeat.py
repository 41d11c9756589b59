"""The heartbeat of alerting: a dead man's switch.

An outside service is called again and again while alerting works, and reports it when the calls stop: because no
process delivers any more, the database does not answer, or a sink accepts nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pgrouse.alerts.http_post import http_post
from pgrouse.alerts.secret import reveal
from pgrouse.alerts.sink import SendFailed
from pgrouse.client.call import run_async
from pgrouse.client.calls.monitoring.alert import alerting_problem
from pgrouse.client.connection import database
from pgrouse.config import dsn
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process.new_thread import call_in_new_thread

if TYPE_CHECKING:
    import psycopg

    from pgrouse.config.alerts import AlertsSettings

DATABASE_TIMEOUT_S = 30
CALL_TIMEOUT_S = 10.0


class AlertHeartbeat:
    """A loop of a deliverer; see `process.loop`.

    Args:
        db: where.
        alerts: with the address of the outside service, and how often to call it.
    """

    name = "alerts heartbeat"

    def __init__(self, db: database.Database, alerts: AlertsSettings) -> None:
        self.db = db
        self.url = reveal(alerts.heartbeat)
        self.interval_s = alerts.heartbeat_interval.total_seconds()
        self._failures = 0
        self._conn: psycopg.AsyncConnection | None = None

    async def step(self) -> float:
        """Call the outside service if alerting works; return how long to wait."""
        if self._conn is None:
            self._conn = await self.db.connect(self.name)
        async with asyncio.timeout(DATABASE_TIMEOUT_S):
            problem = await run_async(self._conn, alerting_problem())
        self._log(problem or await call_in_new_thread(self._call))
        return self.interval_s

    def _call(self) -> str | None:
        """Call it; return why that failed."""
        try:
            http_post(self.url, b"", {}, CALL_TIMEOUT_S)
        except SendFailed as error:
            return dsn.redact(str(error), [self.url])
        return None

    def _log(self, problem: str | None) -> None:
        self._failures = 0 if problem is None else self._failures + 1
        if problem is not None and self._failures & (self._failures - 1) == 0:
            log.warning(events.ALERT_HEARTBEAT_MISSED, reason=problem)

    async def reset(self) -> None:
        """Close the connection."""
        conn, self._conn = self._conn, None
        await database.close(conn)
