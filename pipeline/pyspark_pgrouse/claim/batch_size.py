"""How many messages a batch has: as many as the function works in a third of their lock."""

from __future__ import annotations

# A first batch shows what the function takes, and is what a mistake in it costs.
FIRST = 1_000
# Of the lock: when Spark and the process that extends locks are gone, what is in flight waits for the rest of it.
SHARE_OF_LOCK = 3
MAX_GROWTH = 2.0


class BatchSize:
    """Adapts the number of messages of the next batch to what the last ones took.

    Args:
        most: the most that a batch may have.

    Attributes:
        rows: how many the next batch may have.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows = min(FIRST, most)

    def record(self, messages: int, seconds: float, lock_duration_s: float) -> None:
        """Take note of a batch: how many messages it had, and how long it took, against the shortest of their locks."""
        factor = lock_duration_s / SHARE_OF_LOCK / max(seconds, 0.001)
        if factor < 1:
            self.rows = max(1, int(messages * factor))
        elif messages >= self.rows:
            self.rows = min(self._most, int(self.rows * min(factor, MAX_GROWTH)) or 1)
