"""Several daemon processes under one: `worker.processes`. The parent starts them, starts those anew that died, and passes signals on."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from contextlib import suppress

import structlog

from pgrouse import events

from pgrouse.worker import systemd
from pgrouse.errors import ExitCode
from pgrouse.worker import loop
from pgrouse.worker.loop import backoff_s
from pgrouse.worker.watchdog import Watchdog
from pgrouse.worker.shutdown_signals import SUPERVISOR_GONE

log = structlog.get_logger()

# Tells a child that it is one, and which.
CHILD = "PGROUSE_PROCESS"
# Tells a child who started it.
SUPERVISOR = "PGROUSE_SUPERVISOR"
# A process that lived so long did not die of its start.
LIVED_S = 60.0
PR_SET_PDEATHSIG = 1
# A child that ends so will end so again: nothing is gained by starting it anew.
HOPELESS = (ExitCode.BAD_CONFIG, ExitCode.USAGE)


def is_child() -> bool:
    """Whether this process was started by a supervisor."""
    return CHILD in os.environ


def number() -> int:
    """Return which of the processes this is, the first being 0; 0 also without a supervisor."""
    return int(os.environ.get(CHILD, "0"))


def end_with_the_parent() -> None:
    """Let the kernel tell this child to stop when its supervisor is gone, however it went; end at once if it is already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, SUPERVISOR_GONE)
    # It may have gone while this process was still importing. The kernel tells nobody of that.
    if os.environ.get(SUPERVISOR, str(os.getppid())) != str(os.getppid()):
        os.kill(os.getpid(), SUPERVISOR_GONE)


def run(count: int) -> int:
    """Run so many daemons until told to stop; return the exit code: the first child's that was not 0."""
    return asyncio.run(Supervisor(count).run())


class Supervisor:
    """Keeps `count` daemons running."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.children: dict[int, asyncio.subprocess.Process] = {}
        self.stopping = asyncio.Event()
        self.codes: list[int] = []

    async def run(self) -> int:
        """Start the daemons and wait until all have ended."""
        running = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            running.add_signal_handler(each, self._pass_on, each)
        systemd.notify(READY=1, STATUS=f"{self.count} processes")
        async with asyncio.TaskGroup() as group:
            watchdog = group.create_task(loop.run(Watchdog()))
            keepers = [group.create_task(self._keep(number)) for number in range(self.count)]
            await asyncio.wait(keepers)
            watchdog.cancel()
        return next((code for code in self.codes if code), ExitCode.OK)

    async def _keep(self, number: int) -> None:
        """Keep one daemon running until told to stop."""
        failures = 0
        while not self.stopping.is_set():
            began = asyncio.get_running_loop().time()
            code = await self._run_one(number)
            if self.stopping.is_set() or code in HOPELESS:
                self._stop_all(code)
                return
            lived = asyncio.get_running_loop().time() - began
            failures = 1 if lived > LIVED_S else failures + 1
            log.warning(events.PROCESS_EXITED, process=number, exit_code=code, lived_s=round(lived, 1))
            await self._pause(backoff_s(failures))

    async def _run_one(self, number: int) -> int:
        environ = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        child = await asyncio.create_subprocess_exec(
            sys.executable, *sys.orig_argv[1:], env={**environ, CHILD: str(number), SUPERVISOR: str(os.getpid())}
        )
        self.children[number] = child
        if self.stopping.is_set():
            # The signal came while it was started: nobody has told it.
            _tell(child, signal.SIGTERM)
        code = await child.wait()
        del self.children[number]
        return ExitCode.OK if self._has_not_begun(code) else code

    def _has_not_begun(self, code: int) -> bool:
        """Whether a child was told to stop before it had taken the signals over: it has claimed nothing, and this is its order of ending."""
        return self.stopping.is_set() and code == -signal.SIGTERM

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return

    def _pass_on(self, which: signal.Signals) -> None:
        if which is not signal.SIGHUP:
            self.stopping.set()
        for child in self.children.values():
            _tell(child, which)

    def _stop_all(self, code: int) -> None:
        """The end of one for good is the end of all."""
        self.codes.append(code)
        if not self.stopping.is_set():
            self._pass_on(signal.SIGTERM)


def _tell(child: asyncio.subprocess.Process, which: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        child.send_signal(which)
