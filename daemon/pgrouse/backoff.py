"""How long to wait before the next try, and how often to log that tries fail."""

from __future__ import annotations

import random

import structlog

from pgrouse import events

log = structlog.get_logger()

BACKOFF_MIN_S = 0.1
BACKOFF_MAX_S = 15.0


def backoff_s(failures: int) -> float:
    """Return how long to wait after so many failures in a row: doubling, with full jitter above a minimum."""
    longest = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2 ** min(failures, 10))
    return random.uniform(BACKOFF_MIN_S, longest)  # noqa: S311 - nothing to guess


def jittered(seconds: float) -> float:
    """Return the time with a jitter of a fifth, so that processes that started together do not stay in step."""
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - nothing to guess


def log_failure(name: str, failures: int, error: BaseException) -> None:
    """Log the first failure in a row, and then each time their number has doubled."""
    if failures & (failures - 1) == 0:
        reason = " ".join(str(error).split()) or type(error).__name__
        log.warning(events.LOOP_FAILED, loop=name, failures=failures, reason=reason)


class FailureLog:
    """The failures in a row of one part that tries again: how often they are logged, and how long to wait after each.

    Args:
        name: the part, in the log.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._failures = 0

    def failed(self, error: BaseException) -> float:
        """Record a failure; return how many seconds to wait."""
        self._failures += 1
        log_failure(self.name, self._failures, error)
        return backoff_s(self._failures)

    def recovered(self) -> None:
        """Record a success."""
        if self._failures:
            log.info(events.LOOP_RECOVERED, loop=self.name, failures=self._failures)
        self._failures = 0
