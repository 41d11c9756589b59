"""Charts with a line for each of the topics, or of the workers, that do most."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

from pgrouse.client.call import run_async
from pgrouse.client.calls.stats import throughput
from pgrouse.client.queries.measure import busiest_topics, busiest_workers
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, Row, read_rows
from pgrouse.web.charts.chart import QUANTILES, ChartLine, chart, latency_chart
from pgrouse.web.charts.result_charts import MIN_BAR_S, RESULTS, same_bars

# A chart has five colours.
MAX_LINES = 5


async def read_topic_charts(
    conn: Connection, caller: Caller, since: timedelta, bars: int
) -> tuple[list[str], dict[str, Any]]:
    """Return the busiest topics that the caller may see, and their charts.

    These show attempts per second, and how long they ran and waited.
    """
    topics = await run_async(conn, busiest_topics(since, caller.like, MAX_LINES))
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
