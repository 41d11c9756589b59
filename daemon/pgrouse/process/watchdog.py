"""The watchdog: notifies systemd that the event loop responds.

If the loop is blocked, the notification is missing, and systemd restarts the daemon.
"""

from __future__ import annotations

from pgrouse.process import systemd


class Watchdog:
    """Notifies systemd as often as systemd requests."""

    name = "watchdog"

    async def step(self) -> float:
        """Notify once."""
        systemd.ping_watchdog()
        return systemd.watchdog_s() or 3600.0

    async def reset(self) -> None:
        """Do nothing: there is no connection to close."""
