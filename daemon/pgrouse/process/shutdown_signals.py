"""The signals that stop a daemon.

SIGTERM or SIGINT once: stop gracefully; twice: stop now. SIGHUP: stop gracefully, then start again. A closed terminal:
as SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process import stop_signals
from pgrouse.process.shutdown import Requester, Shutdown
from pgrouse.process.wake_event import WakeEvents


class ShutdownSignals(Shutdown):
    """The signals that have arrived.

    Args:
        wake_events: set at each signal, for loops that wait for something else.
        can_reload: called at SIGHUP; False keeps the running configuration. The daemon continues to work during the
            call.

    Attributes:
        signal: the first signal; if that was SIGHUP, the one after it.
    """

    def __init__(self, wake_events: WakeEvents, can_reload: Callable[[], Awaitable[bool]]) -> None:
        super().__init__(wake_events)
        self.signal: signal.Signals | None = None
        self._can_reload = can_reload
        self._is_reload_due = False
        self._reload_task: asyncio.Future[None] | None = None

    def install(self) -> None:
        """Handle the signals of the process on the event loop that runs."""
        deliver_on_loop(self.on_signal)

    def on_signal(self, which: signal.Signals, by: Requester = Requester.SIGNAL) -> None:
        """Handle one signal, or a request that means the same."""
        if which is signal.SIGHUP:
            self._is_reload_due = True
            if self._reload_task is None or self._reload_task.done():
                self._reload_task = asyncio.ensure_future(self._reload())
        else:
            self._request_stop(which, by)

    async def _reload(self) -> None:
        # One check at a time, and another one if the signal comes again before it ends: the check may not have seen a
        # later change.
        while self._is_reload_due and self.signal is None:
            self._is_reload_due = False
            if await self._can_reload() and self.signal is None:
                self._request_stop(signal.SIGHUP, Requester.RELOAD)

    def _request_stop(self, which: signal.Signals, by: Requester) -> None:
        if self.signal is None:
            self.signal = which
            log.info(events.DAEMON_STOPPING, signal=which.name, by=by.value)
        elif self.signal is signal.SIGHUP:
            # The reload that has begun is replaced: there is no new start.
            self.signal = which
        self.request(by)

    @property
    def is_reload(self) -> bool:
        """Whether the daemon should start again."""
        return self.signal is signal.SIGHUP


def deliver_on_loop(receiver: stop_signals.Receiver) -> None:
    """Call this for each signal from now on, on the event loop that runs."""
    loop = asyncio.get_running_loop()

    def deliver(which: signal.Signals) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(receiver, which)

    stop_signals.deliver_to(deliver)
