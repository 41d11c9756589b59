"""An event that wakes a waiter, who then checks what has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class WakeEvent:
    """Wakes its waiter, at most once per wait. If nothing waits, the next wait returns at once.

    Attributes:
        set: wakes the waiter, or lets the next wait return at once.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.set: Callable[[], None] = self._event.set

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set, at most this long; return whether it was."""
        if not self._event.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
            except TimeoutError:
                return False
        self._event.clear()
        return True


class WakeEvents:
    """One event per waiter, all set together."""

    def __init__(self) -> None:
        self._all: list[WakeEvent] = []

    def new(self) -> WakeEvent:
        """Return the event of one more waiter."""
        event = WakeEvent()
        self._all.append(event)
        return event

    def set(self) -> None:
        """Wake all waiters."""
        for event in self._all:
            event.set()
