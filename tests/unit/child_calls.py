"""What the child processes of tests do.

Only what these functions need is imported: each new process imports this file.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def start_well() -> None:
    """What a process does first."""


def start_badly() -> None:
    raise ImportError("no module named shop")


def wait_for(path: Path) -> str:
    """What a call does that lasts until the test lets it end."""
    while not path.exists():
        time.sleep(0.02)
    return path.name


def announce(path: Path) -> None:
    """Say in a file which process this is, and never end."""
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(3600)


def announce_deaf(path: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    announce(path)


def fork_and_die(path: Path) -> None:
    """The copy goes on."""
    if os.fork() == 0:
        announce(path)
    os._exit(4)


def leave_a_process_and_die(path: Path) -> None:
    """The process that it leaves has all descriptors that are not closed for it."""
    leave_a_process(path)
    os._exit(4)


def leave_a_process(path: Path) -> int:
    os.system(f"sleep 600 & echo $! > {path}.new; mv {path}.new {path}")
    return os.getpid()


def close_everything_and_be_deaf() -> None:
    """As a handler that makes a daemon of itself."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.closerange(3, 100)
    time.sleep(3600)


def raise_exit() -> None:
    raise SystemExit(7)
