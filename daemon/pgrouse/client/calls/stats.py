"""Counts, rates and latencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, function_call, interval, rows_call, value, values
from pgrouse.config.duration import AnyDuration

# Up to here `stats` counts the ready and the delayed messages of a topic; from here on their number is an estimate.
COUNT_BOUND = 1_000
# Of more topics `stats` returns those that matter most.
TOPIC_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class TopicStats:
    """The counts of one topic.

    Attributes:
        ready, delayed: exact below the bound (`COUNT_BOUND`); from there on estimates.
        running, dead_last_day: exact.
        oldest_ready_s: for how many seconds the oldest has been available.
        handled: whether a worker handles the topic.
    """

    topic: str
    ready: int
    delayed: int
    running: int
    dead_last_day: int
    oldest_ready_s: float | None
    handled: bool


@dataclass(frozen=True, slots=True)
class TopicLatency:
    """What the workers measured of one topic, in seconds; None where nothing was.

    Attributes:
        waits: how many waits were measured: from available to claimed.
        runs: how many calls of a handler.
        wakes: how many waits that a notification ended.
    """

    topic: str
    waits: int
    wait_p50_s: float | None
    wait_p95_s: float | None
    wait_p99_s: float | None
    runs: int
    run_p50_s: float | None
    run_p95_s: float | None
    run_p99_s: float | None
    wakes: int
    wake_p50_s: float | None
    wake_p95_s: float | None
    wake_p99_s: float | None


@dataclass(frozen=True, slots=True)
class ThroughputBar:
    """How many attempts ended in one part of a time.

    Attributes:
        at: when it begins.
        s: how many seconds of it have passed.
    """

    at: datetime
    s: float
    success: int
    rejected: int
    failed: int
    lock_expired: int
    retried: int
    deferred: int
    released: int
    lost: int
    wait_p50_s: float | None
    wait_p95_s: float | None
    wait_p99_s: float | None
    run_p50_s: float | None
    run_p95_s: float | None
    run_p99_s: float | None
    wake_p50_s: float | None
    wake_p95_s: float | None
    wake_p99_s: float | None


def stats(
    bound: int | None = None, topics: Sequence[str] | None = None, limit: int | None = None
) -> Call[list[TopicStats]]:
    """Count the messages of each topic; ready and delayed ones beyond a bound, `COUNT_BOUND` unless given, are estimated.

    Args:
        bound: where the estimates begin.
        topics: names, or beginnings that end with *; all unless given.
        limit: of more topics than this, `TOPIC_LIMIT` unless given, those that matter most.
    """
    return rows_call("stats", TopicStats, bound=bound, topics=_listed(topics), limit=limit)


def list_topics(
    after: str | None = None, limit: int | None = None, topics: Sequence[str] | None = None
) -> Call[list[str]]:
    """List the topics that `stats` counts, in the order of their names, after a name."""
    return function_call("list_topics", values, after=after, limit=limit, topics=_listed(topics))


def _listed(topics: Sequence[str] | None) -> list[str] | None:
    return None if topics is None else list(topics)


def latency(since: AnyDuration | None = None, topic: str | None = None) -> Call[list[TopicLatency]]:
    """Say how long messages waited and handlers ran, in a time: the last hour unless given."""
    return rows_call("latency", TopicLatency, since=interval(since, "since"), topic=topic)


def throughput(
    since: AnyDuration | None = None, topic: str | None = None, bars: int | None = None, worker: str | None = None
) -> Call[list[ThroughputBar]]:
    """Count how attempts ended, in bars: of a minute of the last hour unless given otherwise; of one topic or worker, or of all."""
    return rows_call("throughput", ThroughputBar, since=interval(since, "since"), topic=topic, bars=bars, worker=worker)


def unhandled_topics(limit: int | None = None) -> Call[list[str]]:
    """List the topics with waiting messages and no worker; 1,000 at most, unless another limit is given."""
    return function_call("unhandled_topics", values, limit=limit)


def record_measures(name: str, report: int, measures: str) -> Call[bool | None]:
    """Add a worker's measurements to the statistics, JSON; whether this report is in now. None: not yet, send it again."""
    return function_call("record_measures", value, name=name, report=report, measures=measures)
