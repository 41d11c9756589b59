"""Standard streams that may be missing, full, or without a reader."""

from __future__ import annotations

import sys
from contextlib import suppress


def flush() -> None:
    """Write out what the streams hold, as far as they take it."""
    for stream in (sys.stdout, sys.stderr):
        # A stream may be missing or full, or a handler has closed it.
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
