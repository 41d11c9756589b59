"""The request to stop a worker."""

from __future__ import annotations

import asyncio
from enum import StrEnum

from pgrouse.process.wake_event import WakeEvents


class Requester(StrEnum):
    """The sources of a request to stop a worker."""

    APPLICATION = "application"
    SIGNAL = "signal"
    SUPERVISOR = "supervisor"
    END_OF_SUPERVISOR = "end of supervisor"
    OPERATOR = "operator"
    RELOAD = "reload"


class Shutdown:
    """Whether a worker was asked to stop. One request: let running handlers end; two by the same requester: stop now.

    A signal to a group of processes is sent once, but its members may get a second one from their supervisor. An
    operator may drain a worker in the database, and then stop its service. Neither means that the worker must stop at
    once.

    Args:
        wake_events: set at each request, for loops that wait for something else.

    Attributes:
        requested: set by the first request.
        is_immediate: whether a requester asked twice.
    """

    def __init__(self, wake_events: WakeEvents) -> None:
        self.requested = asyncio.Event()
        self.is_immediate = False
        self._wake_events = wake_events
        self._requesters: set[Requester] = set()

    def request(self, by: Requester = Requester.APPLICATION) -> None:
        """Ask the worker to stop."""
        self.is_immediate = self.is_immediate or by in self._requesters
        self._requesters.add(by)
        self.requested.set()
        self._wake_events.set()

    def hasten(self) -> None:
        """Stop now, if it was already asked to stop."""
        self.is_immediate = self.requested.is_set()
        self._wake_events.set()

    async def within(self, seconds: float) -> bool:
        """Wait for a request, at most this long; return whether one came."""
        try:
            async with asyncio.timeout(seconds):
                await self.requested.wait()
        except TimeoutError:
            return False
        return True
