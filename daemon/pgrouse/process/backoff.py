"""How long to wait before the next try, and how often to log that tries fail."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from threading import Lock

from pgrouse.logging import events
from pgrouse.logging.event_logger import log

BACKOFF_MIN_S = 0.1
BACKOFF_MAX_S = 15.0
# How long failures continue until they are logged again, with the latest reason.
LOG_AGAIN_AFTER_S = 60.0


def backoff_s(failures: int) -> float:
    """Return how long to wait after this many consecutive failures: doubling, with full jitter above a minimum."""
    longest = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2 ** min(failures, 10))
    return random.uniform(BACKOFF_MIN_S, longest)  # noqa: S311 - nothing to guess


def jittered(seconds: float) -> float:
    """Return the time with a jitter of a fifth, so that processes that started together do not act at the same time."""
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - nothing to guess


class FailureLog:
    """The consecutive failures of one part that tries again: when they are logged, and how long to wait after each.

    Thread-safe.

    The first failure is logged; while they continue, one after a minute, and then each time that this time has doubled;
    finally, that they are over.

    Args:
        name: the name of the part in the log.
        clock: the time in seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self._clock = name, clock
        self._lock = Lock()
        self._failures = 0
        self._began_at = self._log_at = 0.0

    def failed(self, error: BaseException) -> float:
        """Record a failure; return how many seconds to wait."""
        with self._lock:
            now = self._clock()
            self._began_at = self._began_at if self._failures else now
            is_due = not self._failures or now >= self._log_at
            self._failures += 1
            failures, lasted_s = self._failures, now - self._began_at
            if is_due:
                self._log_at = self._began_at + max(LOG_AGAIN_AFTER_S, 2 * lasted_s)
        if is_due:
            reason = " ".join(str(error).split()) or type(error).__name__
            log.warning(events.LOOP_FAILED, loop=self.name, failures=failures, reason=reason)
        return backoff_s(failures)

    def recovered(self) -> None:
        """Record a success."""
        if not self._failures:
            return
        with self._lock:
            failures, self._failures = self._failures, 0
        if failures:
            lasted_s = round(self._clock() - self._began_at, 1)
            log.info(events.LOOP_RECOVERED, loop=self.name, failures=failures, lasted_s=lasted_s)
