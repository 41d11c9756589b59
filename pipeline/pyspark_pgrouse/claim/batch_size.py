"""The number of messages of a batch: as many as the function processes in a third of their lock."""

from __future__ import annotations

# The first batch shows how long the function takes, and limits the cost of a mistake in the function.
FIRST = 1_000
# A share of the lock: when Spark and the process that extends locks are gone, the messages in flight wait until their
# locks expire.
SHARE_OF_LOCK = 3
MAX_GROWTH = 2.0


class BatchSize:
    """Adapts the number of messages of the next batch to the time of the last ones.

    Args:
        most: the maximum number of messages of a batch.

    Attributes:
        rows: how many messages the next batch may have.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows = min(FIRST, most)

    def record(self, messages: int, seconds: float, lock_duration_s: float) -> None:
        """Record a batch: how many messages it had, and how long it took, compared with the shortest of their locks."""
        factor = lock_duration_s / SHARE_OF_LOCK / max(seconds, 0.001)
        if factor < 1:
            self.rows = max(1, int(messages * factor))
        elif messages >= self.rows:
            self.rows = min(self._most, int(self.rows * min(factor, MAX_GROWTH)) or 1)
