"""A flag that the handler of a signal sets.

`threading.Event` cannot be used: the handler may run in the thread that waits, between any two of its steps, and
`set()` then waits for the lock that `wait()` holds, without end.
"""

from __future__ import annotations

import time

POLL_S = 0.02


class SignalFlag:
    """A flag, not set at first. A handler, or any thread, sets it."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Set it. It stays set."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Return whether it is set, as soon as it is or after this many seconds."""
        deadline = time.monotonic() + timeout_s
        while not self._is_set and (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left_s))
        return self._is_set
