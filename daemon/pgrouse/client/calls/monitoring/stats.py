"""Counts, rates and latencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, binding, binding_of_values
from pgrouse.config.duration import AnyDuration

# Up to here `stats` counts the ready and the delayed messages of a topic; from here on their number is an estimate.
COUNT_BOUND = 1_000
# If there are more topics, `stats` returns those that matter most.
TOPIC_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A row of `messages.stats`.

    Attributes:
        delayed: due later: also those that are blocked, retrying or waiting.
        handled: whether a running worker handles the topic.
    """

    topic: str
    ready: int
    delayed: int
    running: int
    dead_last_day: int
    oldest_ready_s: float | None
    handled: bool


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long messages waited, ran, and took to wake a worker, in seconds; None where nothing was measured."""

    wait_p50_s: float | None
    wait_p95_s: float | None
    wait_p99_s: float | None
    run_p50_s: float | None
    run_p95_s: float | None
    run_p99_s: float | None
    wake_p50_s: float | None
    wake_p95_s: float | None
    wake_p99_s: float | None


@dataclass(frozen=True, slots=True)
class TopicLatency(Latencies):
    """A row of `messages.latency`."""

    topic: str
    waits: int
    runs: int
    wakes: int


@dataclass(frozen=True, slots=True)
class ThroughputBar(Latencies):
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


@binding
def stats(
    bound: int | None = None, topics: Sequence[str] | None = None, limit: int | None = None
) -> Call[list[TopicStats]]:
    """Count the messages of each topic: with `COUNT_BOUND` and `TOPIC_LIMIT` unless given otherwise."""


@binding_of_values
def list_topics(
    after: str | None = None, limit: int | None = None, topics: Sequence[str] | None = None
) -> Call[list[str]]:
    """List the topics that `stats` counts, page by page."""


@binding
def latency(since: AnyDuration | None = None, topic: str | None = None) -> Call[list[TopicLatency]]:
    """Return how long messages waited and handlers ran."""


@binding
def throughput(
    since: AnyDuration | None = None, topic: str | None = None, bars: int | None = None, worker: str | None = None
) -> Call[list[ThroughputBar]]:
    """Return how many attempts ended over time, and how."""


@binding_of_values
def unhandled_topics(limit: int | None = None) -> Call[list[str]]:
    """List the topics with waiting messages and no worker."""


@binding
def record_measures(name: str, report: int, measures: str) -> Call[bool | None]:
    """Record what a worker measured; return whether the report is recorded, None = send it again later."""
