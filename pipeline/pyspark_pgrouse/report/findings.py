"""The data of the page: few enough numbers for one process, however many messages there were."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime

from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.window import Window

MOST_ATTEMPTS = 10  # this number of attempts and more are counted together
ENOUGH = 20  # with fewer messages on one side, a change of the median means nothing
ENOUGH_P99 = 500  # the same for a change of the p99
NOTICEABLE = 0.1  # a change by less is not called better or worse
SURE = 3.0  # standard errors


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of a time in seconds; None = nothing was measured."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True)
class TopicTotals:
    """All messages that ended in the window, or those of one topic.

    `trend`: the p99 of the total time by bucket; None = no message ended.
    """

    ended: int = 0
    dead: int = 0
    cancelled: int = 0
    wait: Percentiles = Percentiles()
    run: Percentiles = Percentiles()
    total: Percentiles = Percentiles()
    trend: tuple[float | None, ...] = ()

    @property
    def failure_rate(self) -> float | None:
        """The share of dead messages; None if no messages count."""
        counted = self.ended - self.cancelled
        return self.dead / counted if counted else None


@dataclass(frozen=True)
class PeriodTotals:
    """The messages that ended on one side of the mark. run_s: the time of all attempts.

    Cancelled messages count in the cost only.
    """

    ended: int = 0
    dead: int = 0
    total: Percentiles = Percentiles()
    retries: int = 0
    run_s: float = 0.0
    seconds: float = 0.0

    @property
    def counted(self) -> int:
        """The number of messages on which the failure rate is based."""
        return self.ended

    @property
    def failure_rate(self) -> float | None:
        """The share of dead messages; None if there was no message."""
        return self.dead / self.ended if self.ended else None

    @property
    def busy(self) -> float:
        """How many messages were processed at once, on average."""
        return self.run_s / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class TopicChange:
    """A topic before and after the mark."""

    before: PeriodTotals
    after: PeriodTotals

    @property
    def slower(self) -> float:
        """The factor by which the p50 or the p99 has grown.

        It is the larger one of those with enough messages; 0 = not known.
        """
        fewest = min(self.before.ended, self.after.ended)
        p50, p99 = (_factor(getattr(self.before.total, p), getattr(self.after.total, p)) for p in ("p50", "p99"))
        return max(p50 if fewest >= ENOUGH else 0.0, p99 if fewest >= ENOUGH_P99 else 0.0)

    @property
    def more_dead(self) -> float:
        """How many more messages died after the mark than would have died at the earlier rate.

        0 if the difference may be chance.
        """
        if not is_failure_rate_changed(self.before, self.after):
            return 0.0
        return ((self.after.failure_rate or 0.0) - (self.before.failure_rate or 0.0)) * self.after.ended

    @property
    def busier(self) -> float:
        """How many more messages were processed at once, on average."""
        return self.after.busy - self.before.busy


def is_failure_rate_changed(before: PeriodTotals | WeekTotals, after: PeriodTotals | WeekTotals) -> bool:
    """Return whether the failure rates differ by three standard errors or more: a smaller difference may be chance."""
    if not before.counted or not after.counted:
        return False
    rate = (before.dead + after.dead) / (before.counted + after.counted)
    error = math.sqrt(rate * (1 - rate) * (1 / before.counted + 1 / after.counted))
    return error > 0 and abs(before.dead / before.counted - after.dead / after.counted) >= SURE * error


def _factor(before: float | None, after: float | None) -> float:
    return after / before if before and after else 0.0


@dataclass(frozen=True)
class TopicCost:
    """The cost of the messages of a topic.

    run_s: the time of all attempts; failed_run_s: the time of attempts that did not succeed.
    """

    messages: int = 0
    retries: int = 0
    run_s: float = 0.0
    failed_run_s: float = 0.0


@dataclass(frozen=True)
class WeekTotals:
    """One topic in one week."""

    ended: int
    cancelled: int
    dead: int
    retries: int
    run_s: float
    p99_s: float | None

    @property
    def counted(self) -> int:
        """The number of messages on which the failure rate is based."""
        return self.ended - self.cancelled

    @property
    def failure_rate(self) -> float | None:
        """The share of dead messages; None if no message counts."""
        return self.dead / self.counted if self.counted else None


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
    """How many messages ended with this many attempts (MOST_ATTEMPTS: this many or more), and how many are dead."""

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
    """One worker: how many messages it held at once, on average in the window, and at most in one bucket."""

    name: str | None
    mean: float
    most: float


@dataclass(frozen=True)
class BurnRate:
    """How an SLO was met in the last `hours` of the window; burn_rate None = no message ended."""

    hours: float
    ended: int
    good: int
    burn_rate: float | None


@dataclass(frozen=True)
class SloStatus:
    """An SLO: its look-back periods, and how many messages missed and met it.

    The shortest period is the first, the whole window the last. The share that missed it is by bucket, the share that
    met it by week.
    """

    slo: Slo
    burn_rates: tuple[BurnRate, ...]
    missed: tuple[float | None, ...] = ()
    weeks: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Findings:
    """A report. Series have one value per bucket of the window.

    Attributes:
        source: the source of the messages, in a form that can be shown.
        asked: the requested window; `window` may be shorter, if the rest is empty.
        read: how many archived messages were read, including those of a baseline.
        topic_count: how many topics there are; `topics` has the busiest, by name.
        throughput: ended messages of the busiest topics by name, and of all other topics under `others`.
        deaths: dead messages by result.
        error_group_count: how many fingerprints there are; `error_groups` has the most frequent.
        new_error_groups: how many of all fingerprints are new since the mark.
        failing_count: how many topics have dead messages; `failing` has those with the most.
        change: all topics before and after the mark; None = there is no comparison. `changes` has the topics that
            changed most.
        slower: the topics that got slower, the largest change first; `failing_more` and `costing_more` in the same way.
        cost: the cost of all topics; `costs` has the topics that cost most, in descending order.
        weeks: the starts of the last whole weeks; `week_totals` has one value for each, by topic, with "" for all
            topics.
        busy: how many messages were held at once.
        workers: how many workers held any message.
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
    slower: dict[str, TopicChange] = field(default_factory=dict)
    failing_more: dict[str, TopicChange] = field(default_factory=dict)
    costing_more: dict[str, TopicChange] = field(default_factory=dict)
    cost: TopicCost = TopicCost()
    costs: dict[str, TopicCost] = field(default_factory=dict)
    weeks: tuple[datetime, ...] = ()
    week_totals: dict[str, tuple[WeekTotals | None, ...]] = field(default_factory=dict)
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
