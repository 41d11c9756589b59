"""Something happened, look again: an event that its waiter resets by waiting."""

from __future__ import annotations

import asyncio


class Signal:
    """Wakes whoever waits, at most once per wait; a set that nobody waits for is kept for the next one who does."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the waiters, or let the next one pass at once."""
        self._event.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set, at most so long; return whether it was."""
        if not self._event.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
            except TimeoutError:
                return False
        self._event.clear()
        return True


class Signals:
    """A signal for each of several waiters, all set at once."""

    def __init__(self) -> None:
        self._all: list[Signal] = []

    def new(self) -> Signal:
        """Return the signal of one more waiter."""
        signal = Signal()
        self._all.append(signal)
        return signal

    def set(self) -> None:
        """Wake all waiters."""
        for signal in self._all:
            signal.set()
