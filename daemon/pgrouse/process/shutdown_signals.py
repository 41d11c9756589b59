"""The signals that stop a daemon.

SIGTERM or SIGINT once: stop gracefully; twice: stop now. SIGHUP: stop gracefully, then start again. A closed terminal: as SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import structlog

from pgrouse import events
from pgrouse.process import stop_signals
from pgrouse.process.shutdown import Requester, Shutdown
from pgrouse.process.wake_event import WakeEvents

log = structlog.get_logger()


class ShutdownSignals(Shutdown):
    """Which signals have arrived.

    Args:
        wake_events: set at each signal, for those who wait for something else.
        can_reload: called at SIGHUP; False keeps the running configuration. The daemon works on while this runs.

    Attributes:
        signal: the first signal; the one after it, if that was SIGHUP.
    """

    def __init__(self, wake_events: WakeEvents, can_reload: Callable[[], Awaitable[bool]]) -> None:
        super().__init__(wake_events)
        self.signal: signal.Signals | None = None
        self._can_reload = can_reload
        self._reloads: set[asyncio.Future[None]] = set()

    def install(self) -> None:
        """Handle the signals of the process on the event loop that runs."""
        deliver_on_loop(self.on_signal)

    def on_signal(self, which: signal.Signals, by: Requester = Requester.SIGNAL) -> None:
        """Handle one signal, or what is asked for in another way and means the same."""
        if which is signal.SIGHUP:
            reload = asyncio.ensure_future(self._reload())
            self._reloads.add(reload)
            reload.add_done_callback(self._reloads.discard)
        else:
            self._request_stop(which, by)

    async def _reload(self) -> None:
        if self.signal is None and await self._can_reload() and self.signal is None:
            self._request_stop(signal.SIGHUP, Requester.RELOAD)

    def _request_stop(self, which: signal.Signals, by: Requester) -> None:
        if self.signal is None:
            self.signal = which
            log.info(events.DAEMON_STOPPING, signal=which.name, by=by.value)
        elif self.signal is signal.SIGHUP:
            # Instead of the reload that has begun: there is no new start.
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
