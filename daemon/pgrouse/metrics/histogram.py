"""Durations in the buckets of the database."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable

# The buckets of messages.quantile: bucket i holds what took longer than bound i - 1 and not longer than bound i; the
# last has no end.
BUCKETS = 48
BOUNDS_S = tuple(0.0001 * 2 ** (i / 2) for i in range(1, BUCKETS))


class Histogram:
    """Durations, in seconds.

    Attributes:
        add: adds one value; thread-safe.
        add_all: adds several values.
        counts: how many values fell into each bucket, the first bucket first.
        sum_s: the sum of all values.
    """

    __slots__ = ("_unsorted", "add", "add_all", "counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.sum_s = 0.0
        self._unsorted: list[float] = []
        self.add: Callable[[float], None] = self._unsorted.append
        self.add_all: Callable[[Iterable[float]], None] = self._unsorted.extend

    def flush(self) -> None:
        """Sort the new values into the buckets. One thread at a time."""
        # Other threads append to this list at the same time: their values stay for the next time.
        fresh = self._unsorted[:]
        if not fresh:
            return
        del self._unsorted[: len(fresh)]
        self.sum_s += sum(fresh)
        fresh.sort()
        begin = 0
        while begin < len(fresh):
            bucket = bisect_left(BOUNDS_S, fresh[begin])
            end = len(fresh) if bucket == BUCKETS - 1 else bisect_right(fresh, BOUNDS_S[bucket], begin)
            self.counts[bucket] += end - begin
            begin = end
