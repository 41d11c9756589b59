"""How dead messages are redriven: in batches, over time, and with which outcomes."""

from __future__ import annotations

import time
from datetime import timedelta

BATCH = 500

# How many may become available per second, as messages.redrive allows.
MIN_RATE = 0.001
MAX_RATE = 1_000_000

REDRIVEN_OUTCOMES = ("redriven", "keyless")
REFUSED_OUTCOMES = ("too_often", "too_large", "redriven_before", "not_dead", "not_waiting")

# Why a message was not redriven, and what to do about it.
SKIP_REASONS = {
    "superseded": "stayed dead: a newer message with the same key waits (the topic's key_on_retry is supersede)",
    "too_often": "stayed dead: redriven max_redrives times already; --force redrives it anyway",
    "too_large": "not redriven: too large as text",
    "redriven_before": "not redriven: redriven before (`pgrouse dead list --redriven`)",
    "not_dead": "not redriven: not a dead message (`pgrouse message show ID`)",
    "not_waiting": "not moved: not a waiting copy in a .dlq topic (`pgrouse message show ID`)",
    "no_payload": "not replayed: the topic's archive_success did not keep their payloads",
}


class RateSpreader:
    """Spreads the messages of all batches evenly over time.

    Args:
        rate: messages per second; None = all at once.
        delay: when the first one becomes available.
    """

    def __init__(self, rate: float | None, delay: timedelta) -> None:
        self.rate = rate
        self._first_s = delay.total_seconds()
        self._began = time.monotonic()

    def delay(self, done: int) -> timedelta:
        """Return the delay of the next batch, after this many messages."""
        due_s = self._first_s + (done / self.rate if self.rate else 0.0)
        return timedelta(seconds=max(0.0, due_s - (time.monotonic() - self._began)))


def bound_of_a_topic(topics: int, together: int, least: int, most: int) -> int:
    """Return how many messages to look at of each topic, so that those of all topics together stay near the bound.

    Args:
        topics: that have dead messages.
        together: of all topics.
        least: of one, however many topics there are.
        most: of one.
    """
    return min(most, max(least, together // max(1, topics)))
