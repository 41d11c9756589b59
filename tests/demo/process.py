"""A demo process on a test's database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.daemon import preloaded
from tests.daemon.preloaded import Forked

PGROUSE = Path(sysconfig.get_path("scripts")) / "pgrouse"
WITHIN_S = 100


# What a demo has imported when it begins.
IMPORTS = (*preloaded.IMPORTS, "pgrouse.cli.demo.command")

Begin = Callable[..., "Forked | subprocess.Popen[bytes]"]
fork = partial(Forked, PGROUSE, cwd=Path.cwd(), imports=IMPORTS)


def execute(*arguments: str, env: Mapping[str, str], log: Path, errors: Path) -> subprocess.Popen[bytes]:
    """Start the command as users do."""
    with log.open("wb") as out, errors.open("wb") as err:
        return subprocess.Popen(
            [PGROUSE, *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=preloaded.heed_ctrl_c,  # noqa: PLW1509
        )


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `pgrouse demo` to its end, as a fork."""
    env = environ(folder)
    return preloaded.run(PGROUSE, "demo", *arguments, cwd=Path.cwd(), env=env, folder=folder, imports=IMPORTS)


class Demo:
    """One `pgrouse demo`; its standard output and error go to files, so that no thread has to read them.

    Args:
        folder: for these files, and for private files of the demo, unless root runs the tests.
        begin: starts the process, by default as a fork of one that has imported it; what the demo itself starts is
            executed.
    """

    def __init__(self, folder: Path, dsn: str, *arguments: object, begin: Begin = fork) -> None:
        self._out, self._err = folder / "out", folder / "err"
        command = ("demo", "--dsn", dsn, *map(str, arguments))
        self._process = begin(*command, env=environ(folder), log=self._out, errors=self._err)

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
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)


def environ(folder: Path) -> Mapping[str, str]:
    """Return an environment that names no database."""
    neutral = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "DATABASE_URL"))}
    return {**neutral, "XDG_CACHE_HOME": str(folder), "PYTHONFAULTHANDLER": "1", "PATH": _path()}


def _path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
