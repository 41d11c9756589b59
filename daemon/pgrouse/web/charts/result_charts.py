"""The charts of attempts: how they ended, and how long messages waited, ran and took to wake a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

from pgrouse.client.call import run_async
from pgrouse.client.calls.monitoring.stats import throughput
from pgrouse.client.queries.measure import busiest_topics, busiest_workers
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, Row, read_rows
from pgrouse.web.charts.chart import QUANTILES, ChartLine, chart, latency_chart

# The rate of a bar that has just begun says nothing: workers report only every few seconds, so it would look like a
# fall.
MIN_BAR_S = 20.0
# The last one is drawn over the others.
RESULTS = (
    ChartLine("success", "success", 1),
    ChartLine("retried", "retried", 3),
    ChartLine("lock expired", "lock_expired", 5),
    ChartLine("rejected", "rejected", 4),
    ChartLine("failed", "failed", 2),
)
TIMES = (
    ChartLine("wait", "wait", 1),
    ChartLine("run", "run", 4),
    ChartLine("wake-up", "wake", 3),
)
TIME_COLUMNS = tuple(f"{each.column}_{quantile}_s" for each in TIMES for quantile in QUANTILES)


def result_charts(bars: Sequence[Row], results: Sequence[str] = ()) -> dict[str, Any]:
    """Return the charts of bars, as `messages.throughput` returns them.

    results: show only these, by their column, in this order.
    """
    by_column = {each.column: each for each in RESULTS}
    lines = [by_column[name] for name in results] or RESULTS
    return {
        "throughput": chart(bars, lines, "", per_s=True, enough_s=MIN_BAR_S),
        "latencies": latency_chart(bars, TIMES),
    }


def count_results(bars: Sequence[Row]) -> dict[str, int]:
    """Return how many attempts ended in all bars together, by result."""
    return {each.column: sum(bar[each.column] for bar in bars) for each in RESULTS}


async def read_bars(conn: Connection, caller: Caller, since: timedelta, bars: int) -> list[Row]:
    """Read how attempts ended in each part of a time, of all topics that the caller may see."""
    if caller.sees_all:
        return await read_rows(conn, throughput(since, bars=bars))
    topics = await run_async(conn, busiest_topics(since, caller.limited_to))
    # If there are no topics: the bars of a topic that cannot exist, in which nothing ended.
    of_each = [await read_rows(conn, throughput(since, topic, bars)) for topic in topics or [""]]
    return [_sum_bars(parts) for parts in same_bars(of_each)]


def same_bars(of_each: list[list[Row]]) -> list[list[Row]]:
    """Return, bar by bar, those of all lines that begin at the same time.

    The lines are read one after the other. When a bar begins in between, the later ones have it, and no longer have the
    oldest.
    """
    by_time = [{bar["at"]: bar for bar in bars} for bars in of_each]
    times = set.intersection(*map(set, by_time)) if by_time else ()
    return [[bars[at] for bars in by_time] for at in sorted(times)]


def _sum_bars(bars: Sequence[Row]) -> Row:
    """Add up the same bar of several topics; of their times it has the longest."""
    times = {name: max((bar[name] for bar in bars if bar[name] is not None), default=None) for name in TIME_COLUMNS}
    return {"at": bars[0]["at"], "s": max(bar["s"] for bar in bars), **count_results(bars), **times}


# A chart has five colours.
MAX_LINES = 5


async def read_topic_charts(
    conn: Connection, caller: Caller, since: timedelta, bars: int
) -> tuple[list[str], dict[str, Any]]:
    """Return the busiest topics that the caller may see, and their charts.

    These show attempts per second, and how long they ran and waited.
    """
    topics = await run_async(conn, busiest_topics(since, caller.limited_to, MAX_LINES))
    of_each = [await read_rows(conn, throughput(since, topic, bars)) for topic in topics]
    return topics, _charts(topics, of_each)


async def read_worker_charts(conn: Connection, since: timedelta, bars: int) -> tuple[list[str], dict[str, Any]]:
    """Return the busiest workers, and their charts, as of topics.

    For callers of all topics: a worker may work any of them.
    """
    workers = await run_async(conn, busiest_workers(since, MAX_LINES))
    of_each = [await read_rows(conn, throughput(since, bars=bars, worker=worker)) for worker in workers]
    return workers, _charts(workers, of_each)


def _charts(names: list[str], of_each: list[list[Row]]) -> dict[str, Any]:
    # A topic may be called as a column of a bar is: a line has a name of its own.
    lines = [ChartLine(name, f"line {number}", number) for number, name in enumerate(names, 1)]
    bars = [_bar(parts, lines) for parts in same_bars(of_each)]
    return {
        "throughput": chart(bars, lines, "", per_s=True, enough_s=MIN_BAR_S),
        "latencies": latency_chart(bars, [replace(line, column=f"{line.column} run") for line in lines]),
        "waits": latency_chart(bars, [replace(line, column=f"{line.column} wait") for line in lines]),
    }


def _bar(parts: list[Row], lines: list[ChartLine]) -> Row:
    """Return the same bar of all lines in one row: that of the one that was read last is the longest."""
    bar: Row = {"at": parts[0]["at"], "s": max(part["s"] for part in parts)}
    for line, part in zip(lines, parts, strict=True):
        bar[line.column] = sum(part[each.column] for each in RESULTS)
        times = product(("run", "wait"), QUANTILES)
        bar |= {f"{line.column} {time}_{quantile}_s": part[f"{time}_{quantile}_s"] for time, quantile in times}
    return bar
