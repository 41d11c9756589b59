"""The metrics of a daemon: results of attempts, waiting and running times, and the latency of notifications.

All values only grow. The event loop and the handlers' threads write them; the heartbeat reads them to report them to
the database, and the metrics endpoint when it is scraped. Recording a message costs a few list appends; values are
sorted into buckets one batch at a time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from operator import itemgetter

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.metrics.histogram import Histogram
from pgrouse.worker.reporting.wake_reason import WakeReason

# A notification takes milliseconds. A message that polling finds this late was missed.
MISSED_AFTER_S = 1.0

TOPIC = itemgetter(Message._fields.index("topic"))
WAITED_S = itemgetter(Message._fields.index("waited_s"))


class AttemptResult(StrEnum):
    """How an attempt ended, by the columns of messages.measure."""

    SUCCESS = "success"
    REJECTED = "rejected"
    FAILED = "failed"  # the last attempt failed
    LOCK_EXPIRED = "lock_expired"  # it ran longer than its timeout
    RETRIED = "retried"  # it failed, and another attempt follows
    DEFERRED = "deferred"
    RELEASED = "released"
    LOST = "lost"  # its lock was lost before it ended, or it was cancelled


RESULT_OF_KIND = {
    SettleKind.COMPLETE: AttemptResult.SUCCESS,
    SettleKind.REJECT: AttemptResult.REJECTED,
    SettleKind.FAIL: AttemptResult.FAILED,
    SettleKind.EXPIRE: AttemptResult.LOCK_EXPIRED,
    SettleKind.RETRY: AttemptResult.RETRIED,
    SettleKind.DEFER: AttemptResult.DEFERRED,
    SettleKind.RELEASE: AttemptResult.RELEASED,
    SettleKind.WAIT: AttemptResult.DEFERRED,
}


@dataclass(slots=True)
class TopicMetrics:
    """The metrics of one topic.

    Attributes:
        results: how many attempts ended with each result.
        waits: from available to claimed, by the server's clock.
        runs: calls of the handler; a call with a batch counts once.
        wakes: the waiting times of messages for which a notification woke the daemon.
        missed: messages that arrived while the daemon slept, and that polling found late.
    """

    results: dict[AttemptResult, int] = field(default_factory=lambda: dict.fromkeys(AttemptResult, 0))
    waits: Histogram = field(default_factory=Histogram)
    runs: Histogram = field(default_factory=Histogram)
    wakes: Histogram = field(default_factory=Histogram)
    missed: int = 0

    def flush(self) -> None:
        """Sort the new values into the buckets."""
        for each in (self.waits, self.runs, self.wakes):
            each.flush()


class MetricsRecorder:
    """The metrics of one daemon.

    Attributes:
        topics: by topic; it has the daemon's topics from the start.
        claims: the number of claims, by reason.
        claimed_messages: the number of messages that they returned, by reason.
    """

    def __init__(self, topics: Iterable[str] = ()) -> None:
        self.topics: dict[str, TopicMetrics] = {topic: TopicMetrics() for topic in topics}
        self.claims = dict.fromkeys(WakeReason, 0)
        self.claimed_messages = dict.fromkeys(WakeReason, 0)
        self._lock = threading.Lock()

    def for_topic(self, topic: str) -> TopicMetrics:
        """Return the metrics of a topic."""
        found = self.topics.get(topic)
        return self.topics.setdefault(topic, TopicMetrics()) if found is None else found

    def record_claim(self, messages: Sequence[Message], reason: WakeReason, slept_s: float) -> None:
        """Record a claim.

        Args:
            messages: what it returned, topic by topic.
            reason: why it was made.
            slept_s: how long the daemon had slept before, armed for a notification.
        """
        self.claims[reason] += 1
        self.claimed_messages[reason] += len(messages)
        for topic, group in groupby(messages, TOPIC):
            metrics, waits = self.for_topic(topic), list(map(WAITED_S, group))
            metrics.waits.add_all(waits)
            if reason is WakeReason.NOTIFY:
                metrics.wakes.add_all(waited for waited in waits if waited <= slept_s)
            elif reason is WakeReason.POLL:
                metrics.missed += sum(MISSED_AFTER_S < waited <= slept_s for waited in waits)

    def record_settled(self, settlements: Sequence[Settlement], lost: Iterable[int]) -> Counter[SettleKind]:
        """Record settlements, except the lost ones; return how many there are of each kind."""
        tally: Counter[tuple[str, SettleKind]] = Counter([(each.message.topic, each.kind) for each in settlements])
        kinds: Counter[SettleKind] = Counter()
        for (_, kind), count in tally.items():
            kinds[kind] += count
        gone = set(lost)
        results: Iterable[tuple[tuple[str, AttemptResult], int]]
        if gone or kinds[SettleKind.RETRY]:
            results = Counter((each.message.topic, _result(each, gone)) for each in settlements).items()
        else:
            results = (((topic, RESULT_OF_KIND[kind]), count) for (topic, kind), count in tally.items())
        with self._lock:
            for (topic, result), count in results:
                metrics = self.for_topic(topic)
                metrics.results[result] += count
                metrics.flush()
        return kinds

    def record_end(self, messages: Iterable[Message], result: AttemptResult) -> None:
        """Record attempts that end without being settled. Thread-safe."""
        with self._lock:
            for message in messages:
                self.for_topic(message.topic).results[result] += 1

    def flush(self) -> None:
        """Bring everything up to date before it is read. Thread-safe."""
        with self._lock:
            for metrics in list(self.topics.values()):
                metrics.flush()


def _result(settlement: Settlement, lost: set[int]) -> AttemptResult:
    message = settlement.message
    if message.id in lost:
        return AttemptResult.LOST
    if (
        settlement.kind is SettleKind.RETRY
        and message.max_attempts is not None
        and message.attempt >= message.max_attempts
    ):
        return AttemptResult.FAILED
    return RESULT_OF_KIND[settlement.kind]
