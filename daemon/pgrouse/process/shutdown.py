"""The request to stop a worker."""

from __future__ import annotations

import asyncio

from pgrouse.process.wake_event import WakeEvents


class Shutdown:
    """Whether a worker was asked to stop. Once: let running handlers end; twice: stop now.

    Args:
        wake_events: set at each request, for those who wait for something else meanwhile.

    Attributes:
        requested: set by the first request.
        is_immediate: whether a second request came.
    """

    def __init__(self, wake_events: WakeEvents) -> None:
        self.requested = asyncio.Event()
        self.is_immediate = False
        self._wake_events = wake_events

    def request(self) -> None:
        """Ask the worker to stop."""
        self.is_immediate = self.requested.is_set()
        self.requested.set()
        self._wake_events.set()

    async def within(self, seconds: float) -> bool:
        """Wait for a request, at most this long; return whether one came."""
        try:
            async with asyncio.timeout(seconds):
                await self.requested.wait()
        except TimeoutError:
            return False
        return True
