"""A terminal for commands."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.cli.shell import PGROUSE
from tests.daemon.preloaded import Forked

COLOR = re.compile(r"\x1b\[[0-9;]*m")
CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")


def on_terminal(command: list[str], environ: Mapping[str, str], width: int = 80) -> str:
    """Run a command to its end in a terminal of that width; return everything that it wrote."""
    ours, theirs = _terminal(width)
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=_environment(environ))
    os.close(theirs)
    written = _read_to_the_end(ours)
    process.wait()
    return written


def forked_on_terminal(arguments: str, environ: Mapping[str, str], width: int = 80) -> str:
    """Run `pgrouse` likewise, as a fork of a process that has imported it; its standard input is no terminal."""
    ours, theirs = _terminal(width)
    log = Path(os.ttyname(theirs))
    process = Forked(Path(PGROUSE), *arguments.split(), cwd=Path.cwd(), env=_environment(environ), log=log)
    # The fork has opened the terminal by now.
    os.close(theirs)
    written = _read_to_the_end(ours)
    process.wait(60)
    return written


def _terminal(width: int) -> tuple[int, int]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    return ours, theirs


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    neutral = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**neutral, "TERM": "xterm", **environ}


def _read_to_the_end(terminal: int) -> str:
    written = b""
    # Linux reports the end of the other side as an error.
    with suppress(OSError):
        while block := os.read(terminal, 65536):
            written += block
    os.close(terminal)
    return written.decode().replace("\r\n", "\n")


def plain(written: str) -> list[str]:
    """Return the lines without colours and cursor movements."""
    return [line.rstrip() for line in CONTROL.sub("", written).splitlines()]
