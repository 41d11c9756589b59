"""From tables to findings: what is collected is bounded by the number of buckets and of lines, never by that of messages or topics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pyspark_pgrouse.report.bucket import bucket
from pyspark_pgrouse.report.error_budget import compute_burn_rates
from pyspark_pgrouse.report.findings import (
    MOST_ATTEMPTS,
    AttemptCount,
    BurnRate,
    ChannelSkew,
    ErrorGroup,
    Findings,
    Percentiles,
    PeriodTotals,
    SloStatus,
    TopicChange,
    TopicTotals,
    WorkerLoad,
)
from pyspark_pgrouse.report.latency import MEASURES, PERCENTILES
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.tables import NAMES, Tables
from pyspark_pgrouse.report.throughput import RESULTS
from pyspark_pgrouse.report.window import Window

T = TypeVar("T")
TOPICS, STACKED, FAILING, CHANGED, FAULTS, SKEWS, WORKERS = 20, 7, 10, 10, 15, 8, 12
COMPARED = 1000  # of so many of the busiest topics it is asked which changed most
ENOUGH = 20  # with fewer messages on a side, a change says nothing


def collect_findings(tables: Tables, found: Findings, slos: Sequence[Slo]) -> Findings:
    """Fill in what the tables say.

    Args:
        tables: written for the window of `found`.
        found: says where they come from.
        slos: the service level objectives.
    """
    window = found.window
    topics = _topics(tables)
    names = [*topics][:STACKED]
    made, others = _throughput(tables["throughput"], names, window)
    busy, workers = _held(tables["capacity"], window)
    return replace(
        found,
        whole=_whole(tables),
        topic_count=tables["failures"].count(),
        topics=_with_trends(topics, tables["latency"], window),
        throughput=made,
        others=others,
        deaths=_deaths(tables["throughput"], window),
        latency=_latency(tables["latency"], window),
        failing_count=tables["failures"].where("dead > 0").count(),
        failing=_failing(tables["failures"]),
        **_changes(tables, window),
        **_error_groups(tables, window),
        attempts=_attempts(tables["retries"]),
        skew_count=tables["skew"].where("channels > 1").count(),
        skews=_skews(tables["skew"]),
        busy=busy,
        workers=workers,
        worker_count=tables["capacity"].select("worker").distinct().count(),
        busiest_workers=_workers(tables["capacity"], window),
        slo_statuses=_slo_statuses(tables["slo"], slos, window),
        tables=NAMES,
    )


class Timeline:
    """The buckets of a window, as places in a series."""

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


def _topics(tables: Tables) -> dict[str, TopicTotals]:
    busiest = tables["failures"].orderBy("ended", "topic", ascending=[False, True]).limit(TOPICS)
    rows = busiest.join(tables["latency_by_topic"], "topic", "left").collect()
    return {row["topic"]: _total(row) for row in sorted(rows, key=lambda row: (-row["ended"], row["topic"]))}


def _total(row: Row) -> TopicTotals:
    return _measured(TopicTotals(row["ended"], row["dead"], row["cancelled"]), row)


def _measured(total: TopicTotals, row: Row) -> TopicTotals:
    wait, run, whole = (_percentiles(row, measure) for measure in MEASURES)
    return replace(total, wait=wait, run=run, total=whole)


def _percentiles(row: Row, measure: str, suffix: str = "_s") -> Percentiles:
    return Percentiles(*(row[f"{measure}_{p}{suffix}"] for p in PERCENTILES))


def _whole(tables: Tables) -> TopicTotals:
    sums = tables["failures"].agg(*(F.sum(each).alias(each) for each in ("ended", "dead", "cancelled"))).collect()[0]
    times = tables["latency"].where("at IS NULL AND topic IS NULL").collect()
    total = TopicTotals(sums["ended"] or 0, sums["dead"] or 0, sums["cancelled"] or 0)
    return _measured(total, times[0]) if times else total


def _with_trends(topics: dict[str, TopicTotals], latency: DataFrame, window: Window) -> dict[str, TopicTotals]:
    mine = latency.where(F.col("topic").isin([*topics]) & F.col("at").isNotNull())
    rows = mine.select("topic", _epoch("at"), "total_p99_s").collect()
    line = Timeline(window)
    return {
        name: replace(total, trend=line.series(((r["at"], r["total_p99_s"]) for r in rows if r["topic"] == name), None))
        for name, total in topics.items()
    }


def _throughput(
    throughput: DataFrame, names: list[str], window: Window
) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]]:
    name = F.when(F.col("topic").isin(names), F.col("topic")).alias("name")
    rows = _by_bucket(throughput, window, name).agg(F.sum("ended").alias("ended")).collect()
    line = Timeline(window)
    made = {
        wanted: line.series(((r["at"], r["ended"]) for r in rows if r["name"] == wanted), 0)
        for wanted in [*names, None]
    }
    others = made.pop(None)
    return {name: counts for name, counts in made.items() if name is not None}, others


def _deaths(throughput: DataFrame, window: Window) -> dict[str, tuple[int, ...]]:
    bad = [each for each in RESULTS if each not in ("success", "cancelled")]
    rows = _by_bucket(throughput, window).agg(*(F.sum(each).alias(each) for each in bad)).collect()
    line = Timeline(window)
    return {each: line.series(((r["at"], r[each]) for r in rows), 0) for each in bad}


def _latency(latency: DataFrame, window: Window) -> tuple[Percentiles, ...]:
    rows = latency.where("topic IS NULL AND at IS NOT NULL").withColumn("at", _epoch("at")).collect()
    return Timeline(window).series(((r["at"], _percentiles(r, "total")) for r in rows), Percentiles())


def _failing(failures: DataFrame) -> dict[str, TopicTotals]:
    worst = failures.where("dead > 0").orderBy("dead", "topic", ascending=[False, True]).limit(FAILING)
    return {r["topic"]: TopicTotals(r["ended"], r["dead"], r["cancelled"]) for r in worst.collect()}


def _changes(tables: Tables, window: Window) -> dict[str, Any]:
    """Return `change` and `changes`."""
    if window.mark is None:
        return {}
    whole = tables["changes"].where("topic IS NULL").collect()
    busy = (
        tables["changes"].where("topic IS NOT NULL").orderBy((_c("ended_before") + _c("ended_after")).desc(), "topic")
    )
    changes = {row["topic"]: _change(row) for row in busy.limit(COMPARED).collect()}
    most = sorted(changes.items(), key=lambda item: -_weight(item[1]))[:CHANGED]
    return {"change": _change(whole[0]) if whole else None, "changes": dict(most)}


def _c(name: str) -> Any:
    return F.col(name)


def _change(row: Row) -> TopicChange:
    sides = (
        PeriodTotals(row[f"ended_{side}"], row[f"dead_{side}"], _percentiles(row, "total", f"_{side}_s"))
        for side in ("before", "after")
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


def _error_groups(tables: Tables, window: Window) -> dict[str, Any]:
    """Return `error_groups`, new ones first, `error_group_count` and `new_error_groups`."""
    is_new = (F.col("before") == 0) & F.lit(window.mark is not None)
    ranked = tables["fingerprints"].orderBy(is_new.desc(), F.desc("messages"), "topic", "fingerprint").limit(FAULTS)
    rows = ranked.withColumns({each: F.unix_micros(each) for each in ("first_seen", "last_seen")}).collect()
    error_groups = [_error_group(row) for row in rows]
    return {
        "error_group_count": tables["fingerprints"].count(),
        "new_error_groups": tables["fingerprints"].where(is_new).count(),
        "error_groups": _with_error_trends(error_groups, tables["fingerprint_trend"], window),
    }


def _error_group(row: Row) -> ErrorGroup:
    counts = (row[each] for each in ("messages", "before", "after"))
    seen = (datetime.fromtimestamp(row[each] / 1_000_000, UTC) for each in ("first_seen", "last_seen"))
    sample = (row[f"sample_{each}"] for each in ("id", "result", "error"))
    return ErrorGroup(row["topic"], row["fingerprint"], *counts, *seen, *sample)


def _with_error_trends(error_groups: list[ErrorGroup], trend: DataFrame, window: Window) -> tuple[ErrorGroup, ...]:
    mine = trend.where(F.col("fingerprint").isin([error_group.fingerprint for error_group in error_groups]))
    mine = mine.where(F.col("topic").isin([error_group.topic for error_group in error_groups]))
    rows = mine.select("topic", "fingerprint", _epoch("at"), "messages").collect()
    line = Timeline(window)
    return tuple(
        replace(
            error_group,
            trend=line.series(
                (
                    (r["at"], r["messages"])
                    for r in rows
                    if (r["topic"], r["fingerprint"]) == (error_group.topic, error_group.fingerprint)
                ),
                0,
            ),
        )
        for error_group in error_groups
    )


def _attempts(retries: DataFrame) -> tuple[AttemptCount, ...]:
    number = F.least("attempts", F.lit(MOST_ATTEMPTS)).alias("number")
    sums = retries.groupBy(number).agg(F.sum("messages").alias("messages"), F.sum("dead").alias("dead"))
    return tuple(AttemptCount(row["number"], row["messages"], row["dead"]) for row in sums.orderBy("number").collect())


def _skews(skew: DataFrame) -> tuple[ChannelSkew, ...]:
    rows = skew.where("channels > 1").orderBy("messages", "topic", ascending=[False, True]).limit(SKEWS).collect()
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


def _held(capacity: DataFrame, window: Window) -> tuple[tuple[float, ...], tuple[int, ...]]:
    rows = capacity.groupBy(_epoch("at")).agg(F.sum("busy").alias("busy"), F.count("*").alias("workers")).collect()
    line = Timeline(window)
    return line.series(((r["at"], r["busy"]) for r in rows), 0.0), line.series(
        ((r["at"], r["workers"]) for r in rows), 0
    )


def _workers(capacity: DataFrame, window: Window) -> tuple[WorkerLoad, ...]:
    mean = F.sum("busy") * window.bucket_s / window.seconds
    rows = capacity.groupBy("worker").agg(mean.alias("mean"), F.max("busy").alias("most"))
    busiest = rows.orderBy("mean", "worker", ascending=[False, True]).limit(WORKERS).collect()
    return tuple(WorkerLoad(row["worker"], row["mean"], row["most"]) for row in busiest)


def _slo_statuses(slo: DataFrame, slos: Sequence[Slo], window: Window) -> tuple[SloStatus, ...]:
    if not slos:
        return ()
    burn_rates = compute_burn_rates(slo, slos, window).collect()
    missed = (1 - F.sum("good") / F.sum("ended")).alias("missed")
    rows = _by_bucket(slo, window, F.col("slo")).agg(missed).collect()
    line = Timeline(window)
    return tuple(
        SloStatus(
            slo,
            tuple(
                BurnRate(r["hours"], r["ended"], r["good"], r["burn_rate"]) for r in burn_rates if r["slo"] == slo.name
            ),
            line.series(((r["at"], r["missed"]) for r in rows if r["slo"] == slo.name), None),
        )
        for slo in slos
    )


def _by_bucket(table: DataFrame, window: Window, *more: Any) -> Any:
    return table.groupBy(F.unix_seconds(bucket(F.col("at"), window.bucket_s)).alias("at"), *more)


def _epoch(name: str) -> Any:
    """Return a column in seconds since 1970: as timestamps they would be collected in the time zone of this process."""
    return F.unix_seconds(name).alias(name)
