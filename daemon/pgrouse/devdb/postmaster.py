"""The first process of a PostgreSQL server, identified by the lock file in its data directory."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

SMART, FAST, IMMEDIATE, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL
END_WITHIN_S = 60


def pid(data: Path) -> int | None:
    """Return the process id of the server that runs on this data; None if no server does.

    A killed server may have left a lock file.
    """
    try:
        found = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None
    # Process ids are reused, so the number alone proves nothing.
    return found if str(data) in _command_line(found) else None


def end(data: Path, how: signal.Signals) -> bool:
    """Send the server a signal and wait until its first process is gone; return False if there was none.

    After `KILL` and `IMMEDIATE` the next start recovers. After `KILL` the lock file, and for some milliseconds
    children, remain.
    """
    found = pid(data)
    if found is None:
        return False
    os.kill(found, how)
    deadline = time.monotonic() + END_WITHIN_S
    while pid(data) == found and time.monotonic() < deadline:
        time.sleep(0.005)
    return True


def forget(data: Path, socket: Path) -> None:
    """Remove the lock files of a server that was killed, unless it is alive.

    A reused process id would prevent the next start.
    """
    if pid(data) is None:
        (data / "postmaster.pid").unlink(missing_ok=True)
        for lock in socket.glob(".s.PGSQL.*.lock"):
            lock.unlink()


def _command_line(pid: int) -> str:
    """Return the command line of a process; empty if it is gone or is just ending.

    A minimal Debian has no `ps`, macOS no /proc.
    """
    if not Path("/proc/self/cmdline").exists():
        command = ["ps", "-o", "command=", "-p", str(pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - our own words
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""
