"""How many messages to claim ahead: about what ends in a few milliseconds, so that no slot waits for the next claim.

Messages that are claimed ahead wait in the worker for a free slot, and no other worker can take them. So the number
follows from how many ended lately; messages that wait much longer than expected are released.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from pgrouse.client.message import Message

# The messages that end within this time are claimed ahead. It must be longer than a claim takes, else slots wait for a
# claim.
AHEAD_S = 0.02
# The rate of each topic is measured over at least this time; a lower new rate halves the old one in HALVE_S.
SAMPLE_S = 0.01
HALVE_S = 0.05
# Messages that were claimed ahead are released when they have waited for one to two times this long.
RELEASE_AFTER_S = 0.25


class Prefetch:
    """How many messages of each topic to claim ahead.

    Args:
        ended: returns how many messages of each topic have ended so far.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, ended: Callable[[], Mapping[str, int]], clock: Callable[[], float] = time.monotonic) -> None:
        self._ended, self._clock = ended, clock
        self._sampled_at = clock()
        self._sample = dict(ended())
        self._rates: dict[str, float] = {}

    def counts(self) -> dict[str, int]:
        """Return how many messages to claim ahead, by topic; a topic that is missing has none."""
        elapsed = self._clock() - self._sampled_at
        if elapsed >= SAMPLE_S:
            self._measure(elapsed)
        return {topic: count for topic, rate in self._rates.items() if (count := int(rate * AHEAD_S))}

    def reset(self, messages: Iterable[Message]) -> None:
        """These messages have waited too long: stop claiming ahead for their topics until others end."""
        slow = {each.topic for each in messages}
        # Make a new dictionary: the health check, in another thread, may be reading the old one.
        self._rates = {topic: rate for topic, rate in self._rates.items() if topic not in slow}

    def _measure(self, elapsed: float) -> None:
        before, self._sample = self._sample, dict(self._ended())
        self._sampled_at += elapsed
        left = 0.5 ** (elapsed / HALVE_S)
        rates = {
            topic: max((count - before[topic]) / elapsed, self._rates.get(topic, 0.0) * left)
            for topic, count in self._sample.items()
        }
        self._rates = {topic: rate for topic, rate in rates.items() if rate * AHEAD_S >= 1}


class WaitingMessages:
    """Messages that wait in the worker, first come first out.

    Attributes:
        messages: those that wait.
    """

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self._added = 0
        self._added_before = 0

    def add(self, messages: Sequence[Message]) -> None:
        """Add messages at the end."""
        self.messages.extend(messages)
        self._added += len(messages)

    def discard(self, message: Message) -> bool:
        """Remove a message; return whether it waited."""
        if message not in self.messages:
            return False
        self.messages.remove(message)
        return True

    def take_all(self) -> list[Message]:
        """Remove and return all messages."""
        return self.take(len(self.messages))

    def take_old(self) -> list[Message]:
        """Remove and return those that have waited since the last call of this method, or longer."""
        newer, self._added_before = self._added - self._added_before, self._added
        return self.take(max(0, len(self.messages) - newer))

    def take(self, count: int) -> list[Message]:
        """Remove and return the first messages, at most this many."""
        return [self.messages.popleft() for _ in range(min(count, len(self.messages)))]
