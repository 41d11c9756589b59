"""The watchdog: tells systemd that the event loop still turns. One that is blocked does not say so, and systemd restarts the daemon."""

from __future__ import annotations

from pgrouse.worker import systemd


class Watchdog:
    """Sends a sign of life as often as systemd wants it."""

    name = "watchdog"

    async def step(self) -> float:
        """One sign of life."""
        systemd.notify(WATCHDOG=1)
        return systemd.watchdog_s() or 3600.0

    async def reset(self) -> None:
        """Nothing to close."""
