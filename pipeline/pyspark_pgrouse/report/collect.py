"""Collects findings from tables.

Their size is bounded by the number of buckets and of lines, never by that of messages or topics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pyspark_pgrouse.report.findings import (
    ENOUGH,
    MOST_ATTEMPTS,
    NOTICEABLE,
    AttemptCount,
    BurnRate,
    ChannelSkew,
    ErrorGroup,
    Findings,
    Percentiles,
    PeriodTotals,
    SloStatus,
    TopicChange,
    TopicCost,
    TopicTotals,
    WeekTotals,
    WorkerLoad,
)
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.tables import NAMES, Tables, epoch_us
from pyspark_pgrouse.report.window import Window

T = TypeVar("T")
Row = dict[str, Any]
TOPICS, STACKED, FAILING, CHANGED, ERRORS, SKEWS, WORKERS, COSTS, LED = 20, 7, 10, 10, 15, 8, 12, 12, 5
WEEKS, WEEK_TOPICS = 4, 15
COMPARED = 1000  # among this many of the busiest topics, those that changed most are searched
LOOKBACKS_H = (1, 6)
PERCENTILES = ("p50", "p95", "p99")
DEADLY = ("rejected", "failed", "lock_expired", "expired")


def collect_findings(tables: Tables, found: Findings, slos: Sequence[Slo]) -> Findings:
    """Fill in the findings from the tables.

    Args:
        tables: the tables for the window of `found`.
        found: the findings so far, with the source.
        slos: the service level objectives.
    """
    window = found.window
    topics = _topics(tables)
    names = [*topics][:STACKED]
    made, others = _throughput(tables, names, window)
    busy, workers = _held(tables, window)
    weeks = found.asked.weeks()[-WEEKS:]
    return replace(
        found,
        whole=_whole(tables),
        topic_count=_count(tables, "failures"),
        topics=_with_trends(topics, tables, window),
        throughput=made,
        others=others,
        deaths=_deaths(tables, window),
        latency=_latency(tables, window),
        failing_count=_count(tables, "failures WHERE dead > 0"),
        failing=_failing(tables),
        **_changes(tables, window),
        **_costs(tables),
        weeks=tuple(weeks),
        week_totals=_week_totals(tables, weeks),
        **_error_groups(tables, window),
        attempts=_attempts(tables),
        skew_count=_count(tables, "skew WHERE channels > 1"),
        skews=_skews(tables),
        busy=busy,
        workers=workers,
        worker_count=_count(tables, "(SELECT DISTINCT worker FROM capacity)"),
        busiest_workers=_workers(tables, window),
        slo_statuses=tuple(_slo_status(tables, slo, window, weeks) for slo in slos),
        tables=NAMES,
    )


class Timeline:
    """The buckets of a window, as indexes of a series."""

    def __init__(self, window: Window) -> None:
        self._step = window.bucket_s
        starts = window.starts()
        self._first = int(starts[0].timestamp())
        self._points = len(starts)

    def series(self, pairs: Iterable[tuple[int, T]], nothing: T) -> tuple[T, ...]:
        """Return one value per bucket, from pairs of the bucket's start in seconds since 1970 and its value."""
        values = [nothing] * self._points
        for at, value in pairs:
            values[(at - self._first) // self._step] = value
        return tuple(values)


def _count(tables: Tables, what: str) -> int:
    return int(tables.rows(f"SELECT count(*) AS n FROM {what}")[0]["n"])  # noqa: S608 - a constant of this module


def _bucket(window: Window) -> str:
    """Return the start of a row's bucket in seconds since 1970, as SQL: rows may have shorter steps."""
    return f"epoch_us(time) // 1000000 // {window.bucket_s} * {window.bucket_s}"


def _topics(tables: Tables) -> dict[str, TopicTotals]:
    rows = tables.rows(
        "SELECT * FROM (FROM failures ORDER BY ended DESC, topic LIMIT $n) LEFT JOIN latency_by_topic USING (topic) ORDER BY ended DESC, topic",
        n=TOPICS,
    )
    return {row["topic"]: _measured(_total(row), row) for row in rows}


def _total(row: Row) -> TopicTotals:
    return TopicTotals(row["ended"], row["dead"], row["cancelled"])


def _measured(total: TopicTotals, row: Row) -> TopicTotals:
    wait, run, whole = (_percentiles(row, measure) for measure in ("wait", "run", "total"))
    return replace(total, wait=wait, run=run, total=whole)


def _percentiles(row: Row, measure: str, suffix: str = "_s") -> Percentiles:
    return Percentiles(*(row[f"{measure}_{p}{suffix}"] for p in PERCENTILES))


def _whole(tables: Tables) -> TopicTotals:
    sums = ", ".join(f"coalesce(sum({each}), 0)::BIGINT AS {each}" for each in ("ended", "dead", "cancelled"))
    total = _total(tables.rows(f"SELECT {sums} FROM failures")[0])  # noqa: S608 - constants of this module
    times = tables.rows("FROM latency WHERE time IS NULL AND topic IS NULL")
    return _measured(total, times[0]) if times else total


def _with_trends(topics: dict[str, TopicTotals], tables: Tables, window: Window) -> dict[str, TopicTotals]:
    rows = tables.rows(
        f"SELECT topic, {_bucket(window)} AS at, total_p99_s FROM latency WHERE time IS NOT NULL AND list_contains($names, topic)",  # noqa: S608 - a number
        names=[*topics],
    )
    line = Timeline(window)
    return {
        name: replace(total, trend=line.series(((r["at"], r["total_p99_s"]) for r in rows if r["topic"] == name), None))
        for name, total in topics.items()
    }


def _throughput(tables: Tables, names: list[str], window: Window) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]]:
    rows = tables.rows(
        f"SELECT CASE WHEN list_contains($names, topic) THEN topic END AS name, {_bucket(window)} AS at, sum(ended)::BIGINT AS ended "  # noqa: S608 - a number
        "FROM throughput GROUP BY ALL",
        names=names,
    )
    line = Timeline(window)
    made = {name: line.series(((r["at"], r["ended"]) for r in rows if r["name"] == name), 0) for name in names}
    return made, line.series(((r["at"], r["ended"]) for r in rows if r["name"] is None), 0)


def _deaths(tables: Tables, window: Window) -> dict[str, tuple[int, ...]]:
    sums = ", ".join(f"sum({each})::BIGINT AS {each}" for each in DEADLY)
    rows = tables.rows(f"SELECT {_bucket(window)} AS at, {sums} FROM throughput GROUP BY ALL")  # noqa: S608 - constants of this module
    line = Timeline(window)
    return {each: line.series(((r["at"], r[each]) for r in rows), 0) for each in DEADLY}


def _latency(tables: Tables, window: Window) -> tuple[Percentiles, ...]:
    rows = tables.rows(
        f"SELECT {_bucket(window)} AS start_s, * FROM latency WHERE topic IS NULL AND time IS NOT NULL"  # noqa: S608 - a number
    )
    return Timeline(window).series(((r["start_s"], _percentiles(r, "total")) for r in rows), Percentiles())


def _failing(tables: Tables) -> dict[str, TopicTotals]:
    rows = tables.rows("FROM failures WHERE dead > 0 ORDER BY dead DESC, topic LIMIT $n", n=FAILING)
    return {row["topic"]: _total(row) for row in rows}


def _changes(tables: Tables, window: Window) -> dict[str, Any]:
    """Return `change`, `changes`, and the topics that got worse, by what got worse."""
    rows = tables.rows(
        "FROM changes ORDER BY topic IS NOT NULL, ended_before + ended_after DESC, topic LIMIT $n", n=COMPARED + 1
    )
    changes = {row["topic"]: _change(row, window) for row in rows}
    whole = changes.pop(None, None)
    return {
        "change": whole,
        "changes": _ranked(changes, _weight, CHANGED),
        "slower": _ranked(_only(changes, lambda c: c.slower > 1 + NOTICEABLE), lambda c: c.slower, LED),
        "failing_more": _ranked(_only(changes, lambda c: c.more_dead > 0), lambda c: c.more_dead, LED),
        "costing_more": _ranked(_only(changes, _costs_more), lambda c: c.busier, LED),
    }


def _only(changes: dict[str, TopicChange], wanted: Callable[[TopicChange], bool]) -> dict[str, TopicChange]:
    return {topic: change for topic, change in changes.items() if wanted(change)}


def _ranked(changes: dict[str, TopicChange], by: Callable[[TopicChange], float], most: int) -> dict[str, TopicChange]:
    return dict(sorted(changes.items(), key=lambda item: -by(item[1]))[:most])


def _costs_more(change: TopicChange) -> bool:
    fewest = min(change.before.ended, change.after.ended)
    return fewest >= ENOUGH and change.after.busy > change.before.busy * (1 + NOTICEABLE)


def _change(row: Row, window: Window) -> TopicChange:
    sides = (
        PeriodTotals(
            row[f"ended_{side}"],
            row[f"dead_{side}"],
            _percentiles(row, "total", f"_{side}_s"),
            row[f"retries_{side}"],
            row[f"run_{side}_s"],
            seconds,
        )
        for side, seconds in (("before", window.before_s), ("after", window.after_s))
    )
    return TopicChange(*sides)


def _weight(change: TopicChange) -> float:
    """Return how much a topic changed: by the factor of its times, or by its failure rate."""
    before, after = change.before, change.after
    if min(before.ended, after.ended) < ENOUGH:
        return 0.0
    factors = [
        abs(math.log(b / a))
        for a, b in ((before.total.p50, after.total.p50), (before.total.p99, after.total.p99))
        if a and b
    ]
    failed = abs((after.failure_rate or 0) - (before.failure_rate or 0))
    return max([*factors, failed * 10])


def _costs(tables: Tables) -> dict[str, Any]:
    """Return `cost` and `costs`."""
    (whole,) = tables.rows(
        "SELECT coalesce(sum(messages), 0)::BIGINT AS messages, coalesce(sum(retries), 0)::BIGINT AS retries, "
        "coalesce(sum(run_s), 0) AS run_s, coalesce(sum(failed_run_s), 0) AS failed_run_s FROM cost"
    )
    rows = tables.rows("FROM cost ORDER BY run_s DESC, topic LIMIT $n", n=COSTS)
    return {"cost": TopicCost(**whole), "costs": {row.pop("topic"): TopicCost(**row) for row in rows}}


def _week_totals(tables: Tables, weeks: Sequence[datetime]) -> dict[str, tuple[WeekTotals | None, ...]]:
    """Return the totals of each week, for all topics ("") and for the topics that cost most in these weeks."""
    rows = tables.rows(
        "WITH recent AS (FROM weeks WHERE epoch_us(week) >= $first), "
        "dearest AS (SELECT topic FROM recent WHERE topic IS NOT NULL GROUP BY topic ORDER BY sum(run_s) DESC, topic LIMIT $n) "
        "SELECT coalesce(topic, '') AS name, epoch_us(week) AS week_us, ended, cancelled, dead, retries, run_s, total_p99_s AS p99_s, "
        "sum(run_s) OVER (PARTITION BY topic) AS rank FROM recent WHERE topic IS NULL OR topic IN (FROM dearest) "
        "ORDER BY topic IS NOT NULL, rank DESC, name, week",
        first=epoch_us(weeks[0]) if weeks else 0,
        n=WEEK_TOPICS,
    )
    places = {epoch_us(week): i for i, week in enumerate(weeks)}
    totals: dict[str, list[WeekTotals | None]] = {}
    for row in rows:
        of_topic = totals.setdefault(row["name"], [None] * len(weeks))
        of_topic[places[row["week_us"]]] = WeekTotals(
            row["ended"], row["cancelled"], row["dead"], row["retries"], row["run_s"], row["p99_s"]
        )
    return {topic: tuple(of_topic) for topic, of_topic in totals.items()}


def _error_groups(tables: Tables, window: Window) -> dict[str, Any]:
    """Return `error_groups`, new ones first, `error_group_count` and `new_error_groups`."""
    is_new = "(before = 0 AND getvariable('is_compared'))"
    rows = tables.rows(
        f"SELECT * REPLACE (epoch_us(first_seen) AS first_seen, epoch_us(last_seen) AS last_seen) FROM fingerprints "  # noqa: S608 - a constant
        f"ORDER BY {is_new} DESC, messages DESC, topic, fingerprint LIMIT $n",
        n=ERRORS,
    )
    return {
        "error_group_count": _count(tables, "fingerprints"),
        "new_error_groups": _count(tables, f"fingerprints WHERE {is_new}"),
        "error_groups": _with_error_trends([_error_group(row) for row in rows], tables, window),
    }


def _error_group(row: Row) -> ErrorGroup:
    counts = (row[each] for each in ("messages", "before", "after"))
    seen = (datetime.fromtimestamp(row[each] / 1_000_000, UTC) for each in ("first_seen", "last_seen"))
    sample = (row[f"sample_{each}"] for each in ("id", "result", "error"))
    return ErrorGroup(row["topic"], row["fingerprint"], *counts, *seen, *sample)


def _with_error_trends(error_groups: list[ErrorGroup], tables: Tables, window: Window) -> tuple[ErrorGroup, ...]:
    rows = tables.rows(
        f"SELECT topic, fingerprint, {_bucket(window)} AS at, messages FROM fingerprint_trend "  # noqa: S608 - a number
        "WHERE list_contains($fingerprints, fingerprint) AND list_contains($topics, topic)",
        fingerprints=[group.fingerprint for group in error_groups],
        topics=[group.topic for group in error_groups],
    )
    line = Timeline(window)
    return tuple(
        replace(
            group,
            trend=line.series(
                (
                    (r["at"], r["messages"])
                    for r in rows
                    if (r["topic"], r["fingerprint"]) == (group.topic, group.fingerprint)
                ),
                0,
            ),
        )
        for group in error_groups
    )


def _attempts(tables: Tables) -> tuple[AttemptCount, ...]:
    rows = tables.rows(
        "SELECT least(attempts, $most) AS number, sum(messages)::BIGINT AS messages, sum(dead)::BIGINT AS dead "
        "FROM retries GROUP BY ALL ORDER BY number",
        most=MOST_ATTEMPTS,
    )
    return tuple(AttemptCount(row["number"], row["messages"], row["dead"]) for row in rows)


def _skews(tables: Tables) -> tuple[ChannelSkew, ...]:
    rows = tables.rows("FROM skew WHERE channels > 1 ORDER BY messages DESC, topic LIMIT $n", n=SKEWS)
    return tuple(
        ChannelSkew(
            row["topic"],
            row["channels"],
            row["messages"],
            row["max_over_mean"],
            row["gini"],
            tuple((top["channel"], top["messages"]) for top in row["top"]),
        )
        for row in rows
    )


def _held(tables: Tables, window: Window) -> tuple[tuple[float, ...], tuple[int, ...]]:
    rows = tables.rows(
        f"SELECT {_bucket(window)} AS at, sum(busy) AS busy, count(*) AS workers FROM capacity GROUP BY ALL"  # noqa: S608 - a number
    )
    line = Timeline(window)
    busy = line.series(((r["at"], r["busy"]) for r in rows), 0.0)
    return busy, line.series(((r["at"], r["workers"]) for r in rows), 0)


def _workers(tables: Tables, window: Window) -> tuple[WorkerLoad, ...]:
    rows = tables.rows(
        "SELECT worker, sum(busy) * $part AS mean, max(busy) AS most FROM capacity GROUP BY worker ORDER BY mean DESC, worker LIMIT $n",
        part=window.bucket_s / window.seconds,
        n=WORKERS,
    )
    return tuple(WorkerLoad(row["worker"], row["mean"], row["most"]) for row in rows)


def _slo_status(tables: Tables, slo: Slo, window: Window, weeks: Sequence[datetime]) -> SloStatus:
    rows = tables.rows(
        f"SELECT {_bucket(window)} AS at, 1 - sum(good) / sum(ended) AS missed FROM slo WHERE slo = $name GROUP BY ALL",  # noqa: S608 - a number
        name=slo.name,
    )
    missed = Timeline(window).series(((r["at"], r["missed"]) for r in rows), None)
    by_week = {
        row["week_us"]: row["met"]
        for row in tables.rows(
            "SELECT epoch_us(week) AS week_us, good / ended AS met FROM slo_weeks WHERE slo = $name", name=slo.name
        )
    }
    burn_rates = tuple(burn_rate(tables, slo, window, hours) for hours in _look_backs(window))
    return SloStatus(slo, burn_rates, missed, tuple(by_week.get(epoch_us(week)) for week in weeks))


def _look_backs(window: Window) -> list[float]:
    """Return the lengths in hours. Those that are longer than the window are left out; the last is the whole window."""
    return [float(h) for h in LOOKBACKS_H if h * 3600 < window.seconds] + [window.seconds / 3600]


def burn_rate(tables: Tables, slo: Slo, window: Window, hours: float) -> BurnRate:
    """Return how an SLO was met in the last hours of the window, and its burn rate.

    A rate of 1 uses up exactly the whole budget; None = no message ended.
    """
    (row,) = tables.rows(
        "SELECT coalesce(sum(ended), 0)::BIGINT AS ended, coalesce(sum(good), 0)::BIGINT AS good "
        "FROM slo WHERE slo = $name AND epoch_us(time) >= $since",
        name=slo.name,
        since=epoch_us(window.until - timedelta(hours=hours)),
    )
    ended, good = row["ended"], row["good"]
    return BurnRate(hours, ended, good, (ended - good) / ended / slo.budget if ended else None)
