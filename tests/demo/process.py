"""A demo process on a test's database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

PGROUSE = Path(sysconfig.get_path("scripts")) / "pgrouse"
WITHIN_S = 100


class Demo:
    """One `pgrouse demo`; its standard output and error go to files, so that no thread has to read them.

    Args:
        folder: for these files, and for private files of the demo, unless root runs the tests.
    """

    def __init__(self, folder: Path, dsn: str, *arguments: object) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [PGROUSE, "demo", "--dsn", dsn, *map(str, arguments)],
                env=environ(folder),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                # A shell that runs the tests in the background makes them, and their children, ignore Ctrl-C.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
            )

    @property
    def out(self) -> str:
        """What it printed so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """What it printed to the standard error so far."""
        return self._err.read_text()

    def end(self, within_s: float = WITHIN_S) -> int:
        """Wait for its end and return its exit code."""
        return self._process.wait(within_s)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, if it runs."""
        self._process.kill()
        self._process.wait()


def environ(folder: Path) -> Mapping[str, str]:
    """Return an environment that names no database."""
    neutral = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "DATABASE_URL"))}
    return {**neutral, "XDG_CACHE_HOME": str(folder), "PYTHONFAULTHANDLER": "1", "PATH": _path()}


def _path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
