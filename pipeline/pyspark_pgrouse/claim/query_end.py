"""Detects whether a reader of Spark ends because its query ended, or because Spark is gone.

What Spark does with the process that keeps a stream's reader (measured on 4.3): when a query is stopped, fails, or has taken all that was
available, the process gets SIGTERM, and its socket ends; then `stop()` is called. When the JVM is killed, or exits, only the socket
ends. So the signal distinguishes the two, and it must not end the process, as it does by default.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from pyspark_pgrouse.claim.signal_flag import SignalFlag

READER = "pyspark.sql.streaming.python_streaming_source_runner"
# The signal and the end of the socket come within milliseconds of each other, in either order; on a machine that is busy, within seconds.
SIGNAL_TIMEOUT_S = 20.0


class QueryEnd:
    """Detects whether the query ended or Spark is gone."""

    def __init__(self) -> None:
        self._was_signalled = SignalFlag()
        self._parent = os.getppid()

    def watch(self) -> None:
        """Listen for the signal, if this is the process of a reader."""
        if _is_reader():
            signal.signal(signal.SIGTERM, lambda *_: self._was_signalled.set())

    def is_orderly(self) -> bool:
        """Whether the query ended, so that what it held can go back. Spark being gone is a crash: its restart begins where it was."""
        if not _is_reader():
            return True
        deadline = time.monotonic() + SIGNAL_TIMEOUT_S
        while not self._was_signalled.wait(0.02) and time.monotonic() < deadline:
            if os.getppid() != self._parent:
                return False
        return self._was_signalled.is_set()


def _is_reader() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == READER
