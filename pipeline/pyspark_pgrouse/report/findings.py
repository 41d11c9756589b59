"""What the page is made of: few enough numbers to be held by one process, however many messages there were."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.window import Window

MOST_ATTEMPTS = 10  # from here on numbers of attempts are counted as one


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of a time in seconds; None = nothing was measured."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True)
class TopicTotals:
    """All that ended in the window, or in one topic of it. `trend`: the p99 of the total time by bucket; None = nothing ended."""

    ended: int = 0
    dead: int = 0
    cancelled: int = 0
    wait: Percentiles = Percentiles()
    run: Percentiles = Percentiles()
    total: Percentiles = Percentiles()
    trend: tuple[float | None, ...] = ()

    @property
    def failure_rate(self) -> float | None:
        """The share of dead messages; None if nothing counts."""
        counted = self.ended - self.cancelled
        return self.dead / counted if counted else None


@dataclass(frozen=True)
class PeriodTotals:
    """What ended on one side of the mark."""

    ended: int = 0
    dead: int = 0
    total: Percentiles = Percentiles()

    @property
    def failure_rate(self) -> float | None:
        """The share of dead messages; None if there was no message."""
        return self.dead / self.ended if self.ended else None


@dataclass(frozen=True)
class TopicChange:
    """A topic before and after the mark."""

    before: PeriodTotals
    after: PeriodTotals


@dataclass(frozen=True)
class ErrorGroup:
    """Dead messages of one topic with one fingerprint. `error` is the text of the newest, message `sample_id`."""

    topic: str
    fingerprint: str
    messages: int
    before: int
    after: int
    first_seen: datetime
    last_seen: datetime
    sample_id: int
    result: str
    error: str | None
    trend: tuple[int, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether it was never seen before the mark."""
        return self.before == 0 and self.after > 0


@dataclass(frozen=True)
class AttemptCount:
    """How many messages ended with so many attempts (MOST_ATTEMPTS: so many or more), and how many of them dead."""

    attempts: int
    messages: int
    dead: int


@dataclass(frozen=True)
class ChannelSkew:
    """How a topic's messages are spread over its channels. `top`: the largest, each with its messages."""

    topic: str
    channels: int
    messages: int
    max_over_mean: float
    gini: float
    top: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class WorkerLoad:
    """One worker: how many messages it held at once in the mean of the window, and at most in one bucket."""

    name: str | None
    mean: float
    most: float


@dataclass(frozen=True)
class BurnRate:
    """How an SLO was met in the last `hours` of the window; burn_rate None = nothing ended."""

    hours: float
    ended: int
    good: int
    burn_rate: float | None


@dataclass(frozen=True)
class SloStatus:
    """An SLO: looks back, the shortest first and the whole window last, and the share that missed it by bucket."""

    slo: Slo
    burn_rates: tuple[BurnRate, ...]
    missed: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Findings:
    """A report. Series have one value per bucket of the window.

    Attributes:
        source: where the messages come from, fit to be shown.
        asked: the window that was asked for; `window` may be shorter, where it would be empty.
        read: how many archived messages were read, those of a baseline too.
        topic_count: how many topics there are; `topics` has the busiest, by name.
        throughput: ended messages of the busiest topics by name, all others under `others`.
        deaths: dead messages by result.
        error_group_count: how many fingerprints there are; `error_groups` has the most frequent.
        new_error_groups: how many of all are new since the mark.
        failing_count: how many topics have dead messages; `failing` has those with the most.
        change: all topics before and after the mark; None = nothing is compared. `changes` has the topics that changed most.
        busy: how many messages were held at once.
        workers: how many workers held any.
    """

    source: str
    window: Window
    asked: Window
    made_at: datetime
    read: int = 0
    whole: TopicTotals = TopicTotals()
    topic_count: int = 0
    topics: dict[str, TopicTotals] = field(default_factory=dict)
    throughput: dict[str, tuple[int, ...]] = field(default_factory=dict)
    others: tuple[int, ...] = ()
    deaths: dict[str, tuple[int, ...]] = field(default_factory=dict)
    latency: tuple[Percentiles, ...] = ()
    change: TopicChange | None = None
    changes: dict[str, TopicChange] = field(default_factory=dict)
    failing_count: int = 0
    failing: dict[str, TopicTotals] = field(default_factory=dict)
    error_group_count: int = 0
    new_error_groups: int = 0
    error_groups: tuple[ErrorGroup, ...] = ()
    attempts: tuple[AttemptCount, ...] = ()
    skew_count: int = 0
    skews: tuple[ChannelSkew, ...] = ()
    busy: tuple[float, ...] = ()
    workers: tuple[int, ...] = ()
    worker_count: int = 0
    busiest_workers: tuple[WorkerLoad, ...] = ()
    slo_statuses: tuple[SloStatus, ...] = ()
    tables: tuple[str, ...] = ()
