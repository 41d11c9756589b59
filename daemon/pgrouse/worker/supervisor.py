"""Several daemon processes under one supervisor (`worker.processes`). The supervisor starts them, restarts those that died, and forwards signals."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from contextlib import suppress

import structlog

from pgrouse import events
from pgrouse.backoff import backoff_s
from pgrouse.errors import ExitCode
from pgrouse.process import loop, systemd
from pgrouse.process.shutdown_signals import SUPERVISOR_GONE
from pgrouse.process.watchdog import Watchdog

log = structlog.get_logger()

# The variable that gives a supervised process its number.
PROCESS_NUMBER_VARIABLE = "PGROUSE_PROCESS"
# The variable that gives a process the pid of its supervisor.
SUPERVISOR_PID_VARIABLE = "PGROUSE_SUPERVISOR"
# A process that lived at least this long did not fail at its start.
STABLE_AFTER_S = 60.0
PR_SET_PDEATHSIG = 1
# A process that exits with one of these would do so again: it is not restarted.
PERMANENT_FAILURES = (ExitCode.BAD_CONFIG, ExitCode.USAGE)


def is_supervised() -> bool:
    """Whether this process was started by a supervisor."""
    return PROCESS_NUMBER_VARIABLE in os.environ


def process_number() -> int:
    """Return the number of this process, starting at 0; 0 without a supervisor, too."""
    return int(os.environ.get(PROCESS_NUMBER_VARIABLE, "0"))


def stop_with_parent() -> None:
    """Let the kernel signal this process when its supervisor dies; stop at once if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, SUPERVISOR_GONE)
    # It may have died while this process was still importing; the kernel does not report that.
    if os.environ.get(SUPERVISOR_PID_VARIABLE, str(os.getppid())) != str(os.getppid()):
        os.kill(os.getpid(), SUPERVISOR_GONE)


def run(count: int) -> int:
    """Run this many daemons until asked to stop; return the first exit code that is not 0."""
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
            running.add_signal_handler(each, self._forward_signal, each)
        systemd.notify(READY=1, STATUS=f"{self.count} processes")
        async with asyncio.TaskGroup() as group:
            watchdog = group.create_task(loop.run(Watchdog()))
            supervisors = [group.create_task(self._supervise(number)) for number in range(self.count)]
            await asyncio.wait(supervisors)
            watchdog.cancel()
        return next((code for code in self.codes if code), ExitCode.OK)

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
        environ = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *sys.orig_argv[1:],
            env={**environ, PROCESS_NUMBER_VARIABLE: str(number), SUPERVISOR_PID_VARIABLE: str(os.getpid())},
        )
        self.children[number] = child
        if self.stopping.is_set():
            # The signal arrived while this process was starting, so it has not received it.
            _send_signal(child, signal.SIGTERM)
        code = await child.wait()
        del self.children[number]
        return ExitCode.OK if self._was_stopped_before_start(code) else code

    def _was_stopped_before_start(self, code: int) -> bool:
        """Whether a process was stopped before it had installed its signal handlers: it claimed nothing, so this is a regular end."""
        return self.stopping.is_set() and code == -signal.SIGTERM

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return

    def _forward_signal(self, which: signal.Signals) -> None:
        if which is not signal.SIGHUP:
            self.stopping.set()
        for child in self.children.values():
            _send_signal(child, which)

    def _stop_all(self, code: int) -> None:
        """A process that fails for good stops all the others."""
        self.codes.append(code)
        if not self.stopping.is_set():
            self._forward_signal(signal.SIGTERM)


def _send_signal(child: asyncio.subprocess.Process, which: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        child.send_signal(which)
