"""The daemons of the demo: child processes that run `pgrouse run`, each with its own log file."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Self

from pgrouse.errors import PgrouseError

END_WITHIN_S = 30.0
LOG_LINES = 8
PR_SET_PDEATHSIG = 1
PGROUSE = (sys.executable, "-P", "-m", "pgrouse")


class WorkerDied(PgrouseError):
    """A daemon ended that should have continued."""


# A daemon, as it is recorded for a later process: its process id and its log file. Process ids are reused, so that one
# alone proves nothing. The file is locked as long as the daemon lives: the kernel releases the lock however it ends.
RunningWorker = tuple[int, str]


def stop_left_behind(pid: int, log: Path) -> bool:
    """Stop a daemon of an earlier process, in order if it reacts; return False if it was gone already."""
    if not _is_locked(log):
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + END_WITHIN_S
    while _is_locked(log) and time.monotonic() < deadline:
        time.sleep(0.05)
    if _is_locked(log):
        os.kill(pid, signal.SIGKILL)
    return True


def _is_locked(log: Path) -> bool:
    try:
        with log.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


class DemoWorker:
    """One daemon process.

    Attributes:
        name: its name in the registry and in `locked_by`, before the first colon.
    """

    def __init__(self, name: str, log: Path, command: list[str], environ: dict[str, str], outlives_us: bool) -> None:
        self.name, self.log = name, log
        with log.open("wb") as out:
            fcntl.flock(out, fcntl.LOCK_EX)  # see RunningWorker; the child inherits the lock with the file
            self._process = _start(command, environ, out, outlives_us)
        self.pid = self._process.pid

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"

    def check(self) -> None:
        """Check that it runs.

        Raises:
            WorkerDied: with the end of its log.
        """
        if (code := self._process.poll()) is not None:
            said = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise WorkerDied(f"{self} ended with exit code {code}; its log {self.log} ends:\n{said}")

    def kill(self) -> None:
        """Kill it with -9 and return when it is gone."""
        self._process.kill()
        self._process.wait()

    def tell_to_stop(self) -> None:
        """Ask it to drain and to end."""
        self._process.terminate()

    def has_ended_within(self, seconds: float) -> bool:
        """Wait at most this long for its end; return whether it ended, and in order."""
        try:
            return self._process.wait(max(seconds, 0)) == 0
        except subprocess.TimeoutExpired:
            return False


class DemoWorkers:
    """The daemons of one run. When the block ends, those that still run are killed.

    Args:
        dsn: the database.
        config: the `pgrouse.toml` of the daemons.
        folder: the folder of their logs.
        keep: let them outlive this process.
        note: called with the running daemons whenever they change.
    """

    def __init__(
        self, dsn: str, config: Path, folder: Path, *, keep: bool, note: Callable[[list[RunningWorker]], None]
    ) -> None:
        self._dsn, self._config, self._folder, self._note = dsn, config, folder, note
        self._keep = keep
        self._started = 0
        self.running: list[DemoWorker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.running:
            each.kill()

    def start(self) -> DemoWorker:
        """Start one more daemon; this returns before the daemon is ready."""
        self._started += 1
        name = f"worker-{self._started}"
        return self.start_other(name, ["run", "--config", str(self._config), "--name", name])

    def start_other(self, name: str, command: list[str]) -> DemoWorker:
        """Start another command of pgrouse in the same way as the daemons."""
        worker = DemoWorker(name, self._folder / f"{name}.log", [*PGROUSE, *command], _environ(self._dsn), self._keep)
        self.running.append(worker)
        self._note_running()
        return worker

    def check(self) -> None:
        """Check that all run.

        Raises:
            WorkerDied: one does not.
        """
        for each in self.running:
            each.check()

    def kill(self, worker: DemoWorker) -> None:
        """Kill one with -9."""
        self.running.remove(worker)
        worker.kill()
        self._note_running()

    def stop(self) -> bool:
        """Stop all in order; return whether all ended in time."""
        for each in self.running:
            each.tell_to_stop()
        deadline = time.monotonic() + END_WITHIN_S
        ended = [each for each in self.running if each.has_ended_within(deadline - time.monotonic())]
        self.running = [each for each in self.running if each not in ended]
        return not self.running

    def _note_running(self) -> None:
        self._note([(each.pid, str(each.log)) for each in self.running])


def _start(command: list[str], environ: dict[str, str], out: IO[bytes], outlives_us: bool) -> subprocess.Popen[bytes]:
    """Start a daemon in a new session.

    Ctrl-C is for the demo to handle, and a daemon that is kept survives the terminal.
    """
    return subprocess.Popen(  # noqa: S603 - our own program
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        start_new_session=True,
        preexec_fn=None if outlives_us or sys.platform != "linux" else _die_with_parent,  # noqa: PLW1509 - no threads
    )


# Load this before any fork: between a fork and an exec nothing may be imported.
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    """Make the kernel kill this process when the demo is gone, even after -9."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _environ(dsn: str) -> dict[str, str]:
    """Return a daemon's environment: of the demo's values only the DSN, which must not be on a command line."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PGROUSE_")}
    ours.pop("NOTIFY_SOCKET", None)
    return ours | {"PGROUSE_DSN": dsn, "PGROUSE_LOG__FORMAT": "json"}
