"""What a claim stream has in hand, and until when it keeps the locks of it alive. Its heartbeat looks at it from a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

# A heartbeat comes at a third of the shortest lock.
SHARE_OF_LOCK = 3


@dataclass(frozen=True, slots=True)
class Held:
    """One message in hand.

    Attributes:
        id: of the message.
        claim_id: the number that every settle of it must show.
        until: when its topic's run_timeout is over, by the hand's clock; from then on its lock is left to run out. None = never.
    """

    id: int
    claim_id: int
    until: float | None = None


@dataclass(slots=True)
class Freshness:
    """When the locks of a claim were extended last, and how long the shortest of them is, in seconds."""

    at: float
    lock_for_s: float

    @property
    def due_at(self) -> float:
        """When they are to be extended again."""
        return self.at + self.lock_for_s / SHARE_OF_LOCK


@dataclass(frozen=True)
class Pairs:
    """Messages as every SQL function that settles or extends wants them: ids, and the claim of each, as array literals."""

    ids: str
    claims: str

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int]]) -> Pairs:
        """Write pairs of id and claim: for thousands of them far cheaper than to adapt a list element by element."""
        known = list(rows)
        return cls(_literal(id_ for id_, _ in known), _literal(claim for _, claim in known))


def chunks(rows: Sequence[tuple[int, int]], size: int) -> Iterable[Pairs]:
    """Yield pairs in pieces of at most `size`."""
    return (Pairs.of(rows[at : at + size]) for at in range(0, len(rows), size))


class Hand:
    """The messages in hand. Safe to use from two threads.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[int, Held] = {}
        self._fresh: dict[int, Freshness] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, messages: Iterable[tuple[int, int, float, float | None]]) -> None:
        """Take messages in hand that were locked just now: id, claim, lock and run_timeout in seconds."""
        now = self._clock()
        with self._lock:
            for id_, claim, lock_for_s, timeout_s in messages:
                self._held[id_] = Held(id_, claim, None if timeout_s is None else now + timeout_s)
                fresh = self._fresh.setdefault(claim, Freshness(now, lock_for_s))
                fresh.lock_for_s = min(fresh.lock_for_s, lock_for_s)

    def pairs(self, claims: Collection[int] | None = None) -> list[tuple[int, int]]:
        """Return id and claim of what is in hand; of these claims only, if they are given."""
        with self._lock:
            return [(h.id, h.claim_id) for h in self._held.values() if claims is None or h.claim_id in claims]

    def due(self) -> list[tuple[int, int]]:
        """Return id and claim of what is to be extended now: all of a claim but what is beyond its run_timeout."""
        now = self._clock()
        with self._lock:
            claims = {claim for claim, fresh in self._fresh.items() if fresh.due_at <= now}
            return [
                (h.id, h.claim_id)
                for h in self._held.values()
                if h.claim_id in claims and (h.until is None or now < h.until)
            ]

    def extended(self) -> None:
        """Take note that what was due has been extended."""
        now = self._clock()
        with self._lock:
            for fresh in self._fresh.values():
                if fresh.due_at <= now:
                    fresh.at = now

    def pause_s(self) -> float | None:
        """Return after how many seconds something is due; None = nothing will be."""
        with self._lock:
            due_at = min((fresh.due_at for fresh in self._fresh.values()), default=None)
        return None if due_at is None else max(0.0, due_at - self._clock())

    def lose(self, ids: Iterable[int]) -> None:
        """Forget messages that are held no more: they were settled, or lost."""
        with self._lock:
            for id_ in ids:
                self._held.pop(id_, None)

    def drop(self, claims: Collection[int]) -> None:
        """Forget whole claims."""
        with self._lock:
            self._held = {id_: held for id_, held in self._held.items() if held.claim_id not in claims}
            for claim in claims:
                self._fresh.pop(claim, None)


def _literal(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"
