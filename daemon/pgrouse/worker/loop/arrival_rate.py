"""Decides whether messages arrive steadily.

Looking for them every few milliseconds is then cheaper than being notified of each.

A notification makes its publisher's commit wait for the commits of all others, and a worker that falls asleep after
each message needs two round trips to the database for it. A worker that looks every two milliseconds takes everything
that has arrived in one round trip.
"""

from __future__ import annotations

import math

# Messages are counted over about this long.
WINDOW_S = 0.02
# Messages per second from which on they arrive steadily, and below which no longer: one for two looks, and half of
# that. There a look costs about as much as the notification and the second turn that it saves.
STEADY_FROM, STEADY_TO = 400, 200


class ArrivalRate:
    """Counts the messages that were claimed lately."""

    def __init__(self) -> None:
        self._count = 0.0
        self._counted_at = 0.0
        self._is_steady = False

    def add(self, messages: int, at: float) -> bool:
        """Add the messages that a claim found, perhaps none, at this time of a clock in seconds.

        Return whether they arrive steadily.
        """
        left = math.exp((self._counted_at - at) / WINDOW_S)
        # A backlog does not say how messages arrive: what it adds is gone soon.
        self._count = min(self._count * left + messages, 2 * STEADY_FROM * WINDOW_S)
        self._counted_at = at
        self._is_steady = self._count >= (STEADY_TO if self._is_steady else STEADY_FROM) * WINDOW_S
        return self._is_steady
