"""`pgrouse alert run`: a process that delivers alerts and does nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from secrets import token_hex
from typing import TYPE_CHECKING

from pgrouse.alerts import delivery
from pgrouse.client.connection.database import Database
from pgrouse.database.install import schema
from pgrouse.errors import ExitCode
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process import loop, systemd
from pgrouse.process.shutdown_signals import ShutdownSignals
from pgrouse.process.systemd import Watchdog
from pgrouse.process.wake_event import WakeEvents

if TYPE_CHECKING:
    from pgrouse.config.config import Config


def run(settings: Config) -> ExitCode:
    """Deliver until a signal stops it; return the exit code.

    Raises:
        SchemaMismatch: the database has another schema.
    """
    return asyncio.run(DeliveryProcess(settings).run())


class DeliveryProcess:
    """Starts and stops the loops that deliver."""

    def __init__(self, settings: Config) -> None:
        self.settings = settings
        self.name = f"{settings.worker.name or socket.gethostname()}:{os.getpid()}:{token_hex(2)}"
        self.db = Database(settings.database, self.name)
        self.shutdown = ShutdownSignals(WakeEvents(), _never)

    async def run(self) -> ExitCode:
        """Run until a signal stops it."""
        self.shutdown.install()
        systemd.notify(READY=1, STATUS="waiting for the database")
        watchdog = asyncio.create_task(loop.run(Watchdog()), name=Watchdog.name)
        if await loop.wait_for_database(self._check_database, self.shutdown):
            await self._deliver()
        watchdog.cancel()
        return ExitCode.INTERRUPTED if self.shutdown.signal is signal.SIGINT else ExitCode.OK

    async def _deliver(self) -> None:
        sinks = [each.name for each in self.settings.alerts.to]
        log.info(events.ALERTS_STARTED, deliverer=self.name, sinks=sinks)
        systemd.notify(STATUS=f"delivering to {len(sinks)} sinks")
        async with asyncio.TaskGroup() as group:
            found = delivery.delivery_loops(self.db, self.settings, self.name)
            tasks = [group.create_task(loop.run(each), name=each.name) for each in found]
            await self.shutdown.requested.wait()
            systemd.notify(STOPPING=1)
            await loop.end(tasks)
        log.info(events.ALERTS_STOPPED, deliverer=self.name)

    def _check_database(self) -> None:
        with self.db.startup_connection() as conn:
            schema.check(conn)


async def _never() -> bool:
    """Ignore SIGHUP: nothing can be reloaded without a restart."""
    return False
