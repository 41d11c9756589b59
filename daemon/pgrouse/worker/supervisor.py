"""Several daemon processes under one supervisor (`worker.processes`).

The supervisor starts them, restarts those that died, and passes signals on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import cache, partial

from pgrouse.errors import ExitCode
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process import loop, stop_signals, systemd
from pgrouse.process.backoff import backoff_s
from pgrouse.process.shutdown_signals import deliver_on_loop
from pgrouse.process.systemd import Watchdog
from pgrouse.worker import supervisor_link
from pgrouse.worker.supervisor_link import DRAIN, SOCKET_VARIABLE, SupervisorLink

# The variable that gives a supervised process its number.
PROCESS_NUMBER_VARIABLE = "PGROUSE_PROCESS"
# A process that lived at least this long did not fail at its start.
STABLE_AFTER_S = 60.0
# A process that exits with one of these would do so again: it is not restarted.
PERMANENT_FAILURES = (ExitCode.BAD_CONFIG, ExitCode.USAGE)


def is_supervised() -> bool:
    """Whether this process was started by a supervisor."""
    return PROCESS_NUMBER_VARIABLE in os.environ


def process_number() -> int:
    """Return the number of this process, starting at 0; also 0 without a supervisor."""
    return int(os.environ.get(PROCESS_NUMBER_VARIABLE, "0"))


@cache
def link() -> SupervisorLink:
    """Return this process's end of the socket to its supervisor."""
    return SupervisorLink.of_process()


def run(count: int, stop_s: float) -> int:
    """Run this many daemons until asked to stop; return the first exit code that is not 0.

    stop_s: how long a stop may take.
    """
    return asyncio.run(Supervisor(count, stop_s).run())


class Supervisor:
    """Keeps `count` daemons running.

    Args:
        stop_s: how long they may take to stop; then they are killed, because a handler may block an event loop without
            end.
    """

    def __init__(self, count: int, stop_s: float) -> None:
        self.count, self._stop_s = count, stop_s
        self._running: set[asyncio.subprocess.Process] = set()
        # The sockets to the daemons. They exist from before a daemon's start until its end.
        self.links: dict[int, socket.socket] = {}
        self.stopping = asyncio.Event()
        self.codes: list[int] = []
        self._spawning = asyncio.Lock()

    async def run(self) -> int:
        """Start the daemons and wait until all have ended."""
        deliver_on_loop(self._pass_on)
        systemd.notify(READY=1, STATUS=f"{self.count} processes")
        async with asyncio.TaskGroup() as group:
            watchdog = group.create_task(loop.run(Watchdog()))
            supervisors = [group.create_task(self._supervise(number)) for number in range(self.count)]
            await asyncio.wait(supervisors)
            watchdog.cancel()
        code = next((code for code in self.codes if code), ExitCode.OK)
        stop_signals.deliver_to(partial(stop_signals.end_at_once, code=code))
        return code

    async def _supervise(self, number: int) -> None:
        """Keep one daemon running until asked to stop."""
        failures = 0
        while not self.stopping.is_set():
            began = asyncio.get_running_loop().time()
            code = await self._run_one(number)
            if self.stopping.is_set() or code in PERMANENT_FAILURES:
                self._stop_all(code)
                return
            lived = asyncio.get_running_loop().time() - began
            failures = 1 if lived > STABLE_AFTER_S else failures + 1
            log.warning(events.PROCESS_EXITED, process=number, exit_code=code, uptime_s=round(lived, 1))
            await self._pause(backoff_s(failures))

    async def _run_one(self, number: int) -> int:
        ours, theirs = socket.socketpair()
        # Before the start: an order that is sent now waits for the daemon.
        self.links[number] = ours
        asyncio.get_running_loop().add_reader(ours, self._on_request, ours)
        try:
            with theirs:
                child = await self._start(number, theirs)
            self._running.add(child)
            code = await child.wait()
            self._running.discard(child)
            return code
        finally:
            del self.links[number]
            asyncio.get_running_loop().remove_reader(ours)
            ours.close()

    async def _start(self, number: int, link: socket.socket) -> asyncio.subprocess.Process:
        """Start a daemon whose signals are blocked until it handles them: a signal at its very start would end it."""
        environ = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        async with self._spawning:
            with stop_signals.blocked():
                return await asyncio.create_subprocess_exec(
                    sys.executable,
                    *sys.orig_argv[1:],
                    env={**environ, PROCESS_NUMBER_VARIABLE: str(number), SOCKET_VARIABLE: str(link.fileno())},
                    pass_fds=[link.fileno()],
                )

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return

    def _pass_on(self, which: signal.Signals) -> None:
        if which is not signal.SIGHUP:
            self._begin_stop()
        self._order(supervisor_link.order(which))

    def _on_request(self, link: socket.socket) -> None:
        """A daemon asks to stop all, or has closed its end."""
        requests = supervisor_link.read(link)
        if requests:
            self._drain_all()
        elif requests == b"":
            asyncio.get_running_loop().remove_reader(link)

    def _stop_all(self, code: int) -> None:
        """A process that fails for good stops all the others."""
        self.codes.append(code)
        self._drain_all()

    def _drain_all(self) -> None:
        if not self.stopping.is_set():
            self._begin_stop()
            self._order(DRAIN)

    def _begin_stop(self) -> None:
        if not self.stopping.is_set():
            self.stopping.set()
            asyncio.get_running_loop().call_later(self._stop_s, self._kill_all)

    def _kill_all(self) -> None:
        for child in self._running:
            with suppress(ProcessLookupError):  # it has just ended
                child.kill()
        # Log after the kill: the reader of the log may no longer read.
        for child in self._running:
            log.error(events.SHUTDOWN_ABANDONED, pid=child.pid, fix="do not block in an async handler")

    def _order(self, what: bytes) -> None:
        for link in self.links.values():
            supervisor_link.send(link, what)
