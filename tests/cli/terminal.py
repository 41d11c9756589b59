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

COLOR = re.compile(r"\x1b\[[0-9;]*m")
CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")


def on_terminal(command: list[str], environ: Mapping[str, str], width: int = 80) -> str:
    """Run a command to its end in a terminal of that width; return everything that it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    neutral = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**neutral, "TERM": "xterm", **environ}
    )
    os.close(theirs)
    written = b""
    # Linux reports the end of the other side as an error.
    try:
        while block := os.read(ours, 65536):
            written += block
    except OSError:
        pass
    finally:
        os.close(ours)
        process.wait()
    return written.decode().replace("\r\n", "\n")


def plain(written: str) -> list[str]:
    """Return the lines without colours and cursor movements."""
    return [line.rstrip() for line in CONTROL.sub("", written).splitlines()]
