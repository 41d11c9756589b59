"""The messages that a claim stream has in flight, and when their locks are due to be extended. The heartbeat reads them from its own thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

# A message: its id and the number of its claim.
ClaimRef = tuple[int, int]
# A heartbeat comes at a third of the shortest lock.
SHARE_OF_LOCK = 3


@dataclass(frozen=True, slots=True)
class ClaimInFlight:
    """One message in flight.

    Attributes:
        id: of the message.
        claim_id: the number that every settle of it must show.
        until: when its topic's timeout is over, by `clock`; from then on its lock is left to run out. None = never.
    """

    id: int
    claim_id: int
    until: float | None = None


@dataclass(slots=True)
class LockAge:
    """When the locks of a claim were extended last, and how long the shortest of them is, in seconds."""

    at: float
    lock_duration_s: float

    @property
    def due_at(self) -> float:
        """When they are to be extended again."""
        return self.at + self.lock_duration_s / SHARE_OF_LOCK


def unzip(refs: Iterable[ClaimRef]) -> tuple[list[int], list[int]]:
    """Return ids and claims apart, as every function takes them that settles or extends."""
    known = list(refs)
    return [id_ for id_, _ in known], [claim_id for _, claim_id in known]


def chunks(refs: Sequence[ClaimRef], size: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield ids and claims in pieces of at most `size`."""
    return (unzip(refs[at : at + size]) for at in range(0, len(refs), size))


class MessagesInFlight:
    """The messages in flight. Safe to use from two threads.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[int, ClaimInFlight] = {}
        self._lock_ages: dict[int, LockAge] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, messages: Iterable[tuple[int, int, float, float | None]]) -> None:
        """Add messages that were locked just now: id, claim, lock and timeout in seconds."""
        now = self._clock()
        with self._lock:
            for id_, claim, lock_duration_s, timeout_s in messages:
                self._held[id_] = ClaimInFlight(id_, claim, None if timeout_s is None else now + timeout_s)
                lock_age = self._lock_ages.setdefault(claim, LockAge(now, lock_duration_s))
                lock_age.lock_duration_s = min(lock_age.lock_duration_s, lock_duration_s)

    def refs(self, claims: Collection[int] | None = None) -> list[tuple[int, int]]:
        """Return id and claim of what is in flight; of these claims only, if they are given."""
        with self._lock:
            return [(h.id, h.claim_id) for h in self._held.values() if claims is None or h.claim_id in claims]

    def due(self) -> list[tuple[int, int]]:
        """Return id and claim of what is to be extended now: all of a claim but what is beyond its timeout."""
        now = self._clock()
        with self._lock:
            claims = {claim for claim, lock_age in self._lock_ages.items() if lock_age.due_at <= now}
            return [
                (h.id, h.claim_id)
                for h in self._held.values()
                if h.claim_id in claims and (h.until is None or now < h.until)
            ]

    def mark_extended(self) -> None:
        """Record that what was due has been extended."""
        now = self._clock()
        with self._lock:
            for lock_age in self._lock_ages.values():
                if lock_age.due_at <= now:
                    lock_age.at = now

    def due_in_s(self) -> float | None:
        """Return after how many seconds something is due; None = nothing will be."""
        with self._lock:
            due_at = min((lock_age.due_at for lock_age in self._lock_ages.values()), default=None)
        return None if due_at is None else max(0.0, due_at - self._clock())

    def remove(self, ids: Iterable[int]) -> None:
        """Remove messages that are no longer held: they were settled, or lost."""
        with self._lock:
            for id_ in ids:
                self._held.pop(id_, None)

    def remove_claims(self, claims: Collection[int]) -> None:
        """Remove whole claims."""
        with self._lock:
            self._held = {id_: held for id_, held in self._held.items() if held.claim_id not in claims}
            for claim in claims:
                self._lock_ages.pop(claim, None)
