"""The standard streams of a command.

Whatever started it may have closed them, made them non-blocking, or taken away their reader.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress

STDOUT = 1
# How each is opened on /dev/null if it is missing: what is printed to a missing standard output is an error, as with
# other commands.
MISSING = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
_missing: set[int] = set()


def prepare() -> None:
    """Make the streams usable: all of them exist, wait for their reader, and can write every character."""
    for fd, (name, flags) in enumerate(MISSING.items()):
        if getattr(sys, name) is None:
            _missing.add(fd)
            mode = "r" if fd == 0 else "w"
            setattr(sys, name, open(_open_null(fd, flags), mode, encoding="utf-8"))  # noqa: SIM115 - it stays open
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows its number: rather that than no output at all.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
            _wait_for_reader(stream)


def do_without_stdout() -> None:
    """If there is no standard output, discard what is printed.

    A service does not need it, and its handlers may print.
    """
    if STDOUT in _missing:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def with_fix(error: BaseException) -> BaseException:
    """Return the error of a command; one with the fix if it has failed because there is no standard output."""
    if isinstance(error, OSError) and error.errno == errno.EBADF and STDOUT in _missing:
        return OSError(errno.EBADF, "the standard output is closed: send it to a file, or to /dev/null")
    return error


def discard_unwritable() -> None:
    """Give up what cannot be written.

    At its exit the interpreter would try it again, complain, and end with another code.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_null(fd: int, flags: int) -> int:
    """Open /dev/null as a descriptor, for children too.

    If it were free, the next connection would get it, and what is printed to it.
    """
    null = os.open(os.devnull, flags)
    if null != fd and not _is_open(fd):
        os.dup2(null, fd)
        os.close(null)
        null = fd
    os.set_inheritable(null, True)
    return null


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _wait_for_reader(stream: io.TextIOWrapper) -> None:
    """Undo what another process did to the pipe or terminal that it shares with us.

    Where it is non-blocking, a slow reader costs lines.
    """
    with suppress(OSError, ValueError):
        os.set_blocking(stream.fileno(), True)
