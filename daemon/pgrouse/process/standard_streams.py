"""Standard streams that may be missing, full, or without a reader."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import TextIO


def flush() -> None:
    """Write out what the streams hold, as far as they take it."""
    for stream in (sys.stdout, sys.stderr):
        _can_be_flushed(stream)


@contextmanager
def without_full() -> Iterator[None]:
    """Set a stream that cannot be written to None for the time being.

    multiprocessing flushes both before it starts a process. One that is full keeps what it could not write, and would
    fail each time.
    """
    with ExitStack() as stack:
        for stream, redirect in ((sys.stdout, redirect_stdout), (sys.stderr, redirect_stderr)):
            if not _can_be_flushed(stream):
                stack.enter_context(redirect(None))
        yield


def _can_be_flushed(stream: TextIO | None) -> bool:
    # The stream is missing, or a handler has closed it: nothing is lost then, and nothing fails.
    with suppress(AttributeError, ValueError):
        try:
            stream.flush()  # type: ignore[union-attr]
        except OSError:
            return False
    return True
