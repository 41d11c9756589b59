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
    """A row of `messages.stats`."""

    topic: str
    ready: int
    delayed: int
    running: int
    dead_last_day: int
    oldest_ready_s: float | None
    handled: bool


@dataclass(frozen=True, slots=True)
class TopicLatency:
    """A row of `messages.latency`, in seconds; None where nothing was measured."""

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
    """A row of `messages.throughput`."""

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
    """Count the messages of each topic: with `COUNT_BOUND` and `TOPIC_LIMIT` unless given otherwise."""
    return rows_call("stats", TopicStats, bound=bound, topics=_listed(topics), limit=limit)


def list_topics(
    after: str | None = None, limit: int | None = None, topics: Sequence[str] | None = None
) -> Call[list[str]]:
    """List the topics that `stats` counts, page by page."""
    return function_call("list_topics", values, after=after, limit=limit, topics=_listed(topics))


def _listed(topics: Sequence[str] | None) -> list[str] | None:
    return None if topics is None else list(topics)


def latency(since: AnyDuration | None = None, topic: str | None = None) -> Call[list[TopicLatency]]:
    """Return how long messages waited and handlers ran."""
    return rows_call("latency", TopicLatency, since=interval(since, "since"), topic=topic)


def throughput(
    since: AnyDuration | None = None, topic: str | None = None, bars: int | None = None, worker: str | None = None
) -> Call[list[ThroughputBar]]:
    """Return how many attempts ended over time, and how."""
    return rows_call("throughput", ThroughputBar, since=interval(since, "since"), topic=topic, bars=bars, worker=worker)


def unhandled_topics(limit: int | None = None) -> Call[list[str]]:
    """List the topics with waiting messages and no worker."""
    return function_call("unhandled_topics", values, limit=limit)


def record_measures(name: str, report: int, measures: str) -> Call[bool | None]:
    """Record what a worker measured; return whether the report is recorded, None = send it again later."""
    return function_call("record_measures", value, name=name, report=report, measures=measures)
