"""The POSIX signals that stop a daemon.

SIGTERM or SIGINT once: stop gracefully; twice: stop now. SIGHUP: stop gracefully, then start again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import structlog

from pgrouse import events
from pgrouse.process.shutdown import Shutdown
from pgrouse.process.wake_event import WakeEvents

log = structlog.get_logger()


# Sent by the kernel when the supervisor has died. Not SIGTERM: a parent with threads sends it once per thread, and two of them mean
# "stop now".
SUPERVISOR_GONE = signal.SIGUSR2


class ShutdownSignals(Shutdown):
    """Which signals have arrived.

    Args:
        wake_events: set at each signal, for those who wait for something else meanwhile.
        can_reload: called at SIGHUP; False keeps the running configuration. The daemon works on meanwhile.

    Attributes:
        signal: the first signal.
    """

    def __init__(self, wake_events: WakeEvents, can_reload: Callable[[], Awaitable[bool]]) -> None:
        super().__init__(wake_events)
        self.signal: signal.Signals | None = None
        self._can_reload = can_reload
        self._reload_task: asyncio.Future[None]

    def install(self) -> None:
        """Replace the interpreter's signal handlers."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, SUPERVISOR_GONE):
            loop.add_signal_handler(each, self.on_signal, each)

    def on_signal(self, which: signal.Signals) -> None:
        """Handle one signal."""
        if which is signal.SIGHUP:
            self._reload_task = asyncio.ensure_future(self._reload())
        elif which is not SUPERVISOR_GONE or self.signal is None:
            self._request_stop(which)

    async def _reload(self) -> None:
        if self.signal is None and await self._can_reload() and self.signal is None:
            self._request_stop(signal.SIGHUP)

    def _request_stop(self, which: signal.Signals) -> None:
        if self.signal is None:
            self.signal = which
            log.info(events.DAEMON_STOPPING, signal=which.name)
        self.request()

    @property
    def is_reload(self) -> bool:
        """Whether the daemon should start again."""
        return self.signal is signal.SIGHUP and not self.is_immediate
