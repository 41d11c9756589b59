"""What a daemon measures of its work: how attempts end, how long messages wait and handlers run, and how soon a notification is followed.

Everything only grows. The event loop and the handlers' threads write; the heartbeat reads to report it to the database, and the endpoint of
the metrics when somebody asks. A message costs some list appends here; they are sorted into buckets a batch at a time.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from operator import attrgetter, itemgetter
from time import monotonic

from pgrouse.worker.claim_planner import Source
from pgrouse.client.message import Message
from pgrouse.handlers.outcome import Ended, Kind

# The buckets of messages.quantile: bucket i holds what took longer than bound i - 1 and not longer than bound i; the last has no end.
BUCKETS = 48
BOUNDS_S = tuple(0.0001 * 2 ** (i / 2) for i in range(1, BUCKETS))
# A notification takes milliseconds. What a look without one finds after so long was missed.
LATE_S = 1.0

TOPIC = attrgetter("topic")
WAITED_S = itemgetter(Message._fields.index("waited_s"))
TOPIC_AND_KIND = attrgetter("message.topic", "kind")


class Result(StrEnum):
    """How an attempt ended, by the columns of messages.measure."""

    SUCCESS = "success"
    REJECTED = "rejected"
    FAILED = "failed"  # it was the last one
    LOCK_EXPIRED = "lock_expired"  # it overran its run_timeout
    RETRIED = "retried"  # it failed, and is followed by another
    DEFERRED = "deferred"
    RELEASED = "released"
    LOST = "lost"  # its lock was gone before it ended, or somebody cancelled it


RESULT = {
    Kind.COMPLETE: Result.SUCCESS,
    Kind.REJECT: Result.REJECTED,
    Kind.FAIL: Result.FAILED,
    Kind.EXPIRE: Result.LOCK_EXPIRED,
    Kind.RETRY: Result.RETRIED,
    Kind.DEFER: Result.DEFERRED,
    Kind.RELEASE: Result.RELEASED,
}


class Histogram:
    """Times, in seconds.

    Attributes:
        add: takes in one; any thread may call it.
        add_all: takes in several.
        counts: how many fell into each bucket, the first bucket first.
        sum_s: all of them together.
    """

    __slots__ = ("_fresh", "add", "add_all", "counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.sum_s = 0.0
        self._fresh: list[float] = []
        self.add: Callable[[float], None] = self._fresh.append
        self.add_all: Callable[[Iterable[float]], None] = self._fresh.extend

    def sort_in(self) -> None:
        """Sort what was added into the buckets. One thread at a time."""
        # Others add to the very list meanwhile: what they add behind stays for the next time.
        fresh = self._fresh[:]
        if not fresh:
            return
        del self._fresh[: len(fresh)]
        self.sum_s += sum(fresh)
        fresh.sort()
        begin = 0
        while begin < len(fresh):
            bucket = bisect_left(BOUNDS_S, fresh[begin])
            end = len(fresh) if bucket == BUCKETS - 1 else bisect_right(fresh, BOUNDS_S[bucket], begin)
            self.counts[bucket] += end - begin
            begin = end


@dataclass(slots=True)
class Meter:
    """What is measured of one topic.

    Attributes:
        results: how many attempts ended how.
        waits: from available to claimed, by the server's clock.
        runs: calls of the handler; one that takes a batch counts once.
        wakes: the waits of messages that came while the daemon slept, and that a notification woke it for.
        missed: messages that came while the daemon slept, and that it found late, by itself.
    """

    results: dict[Result, int] = field(default_factory=lambda: dict.fromkeys(Result, 0))
    waits: Histogram = field(default_factory=Histogram)
    runs: Histogram = field(default_factory=Histogram)
    wakes: Histogram = field(default_factory=Histogram)
    missed: int = 0

    def sort_in(self) -> None:
        """Sort what was added into the buckets."""
        for each in (self.waits, self.runs, self.wakes):
            each.sort_in()


class Meters:
    """The meters of one daemon.

    Attributes:
        topics: by topic; those that it works are there from the beginning.
        claims: how many claims were made for which reason.
        found: how many messages they brought.
    """

    def __init__(self, topics: Iterable[str] = ()) -> None:
        self.topics: dict[str, Meter] = {topic: Meter() for topic in topics}
        self.claims = dict.fromkeys(Source, 0)
        self.found = dict.fromkeys(Source, 0)
        self._lock = threading.Lock()

    def of(self, topic: str) -> Meter:
        """Return the meter of a topic."""
        found = self.topics.get(topic)
        return self.topics.setdefault(topic, Meter()) if found is None else found

    def claimed(self, messages: Sequence[Message], source: Source, slept_s: float) -> None:
        """Take in what a claim brought.

        Args:
            messages: what it brought, topic by topic.
            source: why it was made.
            slept_s: how long the daemon had slept before, while a publish would have woken it.
        """
        self.claims[source] += 1
        self.found[source] += len(messages)
        for topic, group in groupby(messages, TOPIC):
            meter, waits = self.of(topic), list(map(WAITED_S, group))
            meter.waits.add_all(waits)
            if source is Source.NOTIFY:
                meter.wakes.add_all(waited for waited in waits if waited <= slept_s)
            elif source is Source.POLL:
                meter.missed += sum(LATE_S < waited <= slept_s for waited in waits)

    def ran(self, topic: str, began: float, ran_s: float | None = None) -> None:
        """A call of a handler is over that began then, by the monotonic clock, or that took so long. Any thread may say so."""
        self.of(topic).runs.add(monotonic() - began if ran_s is None else ran_s)

    def settled(self, ended: Sequence[Ended], lost: Iterable[int]) -> Counter[Kind]:
        """Take in that these were settled, but for the lost ones; return how many of each kind they are."""
        tally: Counter[tuple[str, Kind]] = Counter(map(TOPIC_AND_KIND, ended))
        kinds: Counter[Kind] = Counter()
        for (_, kind), count in tally.items():
            kinds[kind] += count
        gone = set(lost)
        results: Iterable[tuple[tuple[str, Result], int]]
        if gone or kinds[Kind.RETRY]:
            results = Counter((each.message.topic, _result(each, gone)) for each in ended).items()
        else:
            results = (((topic, RESULT[kind]), count) for (topic, kind), count in tally.items())
        with self._lock:
            for (topic, result), count in results:
                meter = self.of(topic)
                meter.results[result] += count
                meter.sort_in()
        return kinds

    def ended(self, messages: Iterable[Message], result: Result) -> None:
        """Take in attempts that end otherwise than by being settled. Any thread may say so."""
        with self._lock:
            for message in messages:
                self.of(message.topic).results[result] += 1

    def sort_in(self) -> None:
        """Bring everything up to date before it is read. Any thread may call this."""
        with self._lock:
            for meter in list(self.topics.values()):
                meter.sort_in()


def _result(ended: Ended, lost: set[int]) -> Result:
    message = ended.message
    if message.id in lost:
        return Result.LOST
    if ended.kind is Kind.RETRY and message.max_attempts is not None and message.attempt >= message.max_attempts:
        return Result.FAILED
    return RESULT[ended.kind]
