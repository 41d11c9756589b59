"""Being told to stop: SIGTERM or SIGINT once means in order, twice means now; SIGHUP means in order, and then again from the start."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import structlog

from pgrouse import events
from pgrouse.worker.wake_event import Signals

log = structlog.get_logger()


# What the kernel sends when the supervisor is gone. Not SIGTERM: of a parent with threads it comes once for each of them, and twice
# would mean now.
SUPERVISOR_GONE = signal.SIGUSR2


class Stop:
    """Which signals have come.

    Args:
        signals: set at each signal, for those who wait for something else meanwhile.
        may_reload: asked at SIGHUP; False keeps the running configuration. Meanwhile the daemon works on.

    Attributes:
        requested: set by the first signal.
        by: which one that was.
        now: whether a second one came.
    """

    def __init__(self, signals: Signals, may_reload: Callable[[], Awaitable[bool]]) -> None:
        self.requested = asyncio.Event()
        self.by: signal.Signals | None = None
        self.now = False
        self._signals, self._may_reload = signals, may_reload
        self._asking: asyncio.Future[None]

    def install(self) -> None:
        """Take the signals over from the interpreter."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, SUPERVISOR_GONE):
            loop.add_signal_handler(each, self.hear, each)

    def hear(self, which: signal.Signals) -> None:
        """Take in one signal."""
        if which is signal.SIGHUP:
            self._asking = asyncio.ensure_future(self._reload())
        elif which is not SUPERVISOR_GONE or self.by is None:
            self._begin(which)

    async def _reload(self) -> None:
        if self.by is None and await self._may_reload() and self.by is None:
            self._begin(signal.SIGHUP)

    def _begin(self, which: signal.Signals) -> None:
        if self.by is None:
            self.by = which
            log.info(events.DAEMON_STOPPING, signal=which.name)
        else:
            self.now = True
        self.requested.set()
        self._signals.set()

    async def within(self, seconds: float) -> bool:
        """Wait at most so long; return whether a signal came."""
        try:
            async with asyncio.timeout(seconds):
                await self.requested.wait()
        except TimeoutError:
            return False
        return True

    @property
    def is_reload(self) -> bool:
        """Whether the daemon shall begin anew."""
        return self.by is signal.SIGHUP and not self.now
