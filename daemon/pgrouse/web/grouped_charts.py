"""Charts with a line for each of the topics, or of the workers, that do most."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pgrouse.client.calls.stats import throughput
from pgrouse.web.caller import Caller
from pgrouse.web.chart import ChartLine, chart
from pgrouse.web.database_pool import Connection, Row, read_rows

# A chart has five colours.
MAX_LINES = 5
# Deferred and released attempts are not counted: nothing of them ended. now(), not messages.now(): the planner must see how little that is.
BUSIEST_TOPICS = b"""
  SELECT m.topic AS name
  FROM messages.measure AS m
  WHERE m.minute >= now() - %(since)s::interval AND (%(all)s OR m.topic LIKE ANY (%(like)s))
  GROUP BY m.topic
  ORDER BY sum(m.success + m.retried + m.rejected + m.failed + m.lock_expired) DESC, m.topic
  LIMIT %(most)s"""
BUSIEST_WORKERS = b"""
  SELECT m.worker AS name
  FROM messages.worker_measure AS m
  WHERE m.minute >= now() - %(since)s::interval
  GROUP BY m.worker
  ORDER BY sum(m.success + m.retried + m.rejected + m.failed + m.lock_expired) DESC, m.worker
  LIMIT %(most)s"""
ENDED = ("success", "retried", "rejected", "failed", "lock_expired")


async def read_topic_charts(
    conn: Connection, caller: Caller, since: timedelta, bars: int, *, enough_s: float
) -> tuple[list[str], dict[str, Any]]:
    """Return the busiest topics that the caller may see, and their charts: attempts per second, and how long these ran (p95)."""
    values = {"since": since, "like": caller.like, "all": caller.sees_all, "most": MAX_LINES}
    topics = [row["name"] for row in await (await conn.execute(BUSIEST_TOPICS, values)).fetchall()]
    of_each = [await read_rows(conn, throughput(since, topic, bars)) for topic in topics]
    return topics, _charts(topics, of_each, enough_s)


async def read_worker_charts(
    conn: Connection, since: timedelta, bars: int, *, enough_s: float
) -> tuple[list[str], dict[str, Any]]:
    """Return the busiest workers, and their charts, as of topics. For callers of all topics: a worker may work any of them."""
    values = {"since": since, "most": MAX_LINES}
    workers = [row["name"] for row in await (await conn.execute(BUSIEST_WORKERS, values)).fetchall()]
    of_each = [await read_rows(conn, throughput(since, bars=bars, worker=worker)) for worker in workers]
    return workers, _charts(workers, of_each, enough_s)


def _charts(names: list[str], of_each: list[list[Row]], enough_s: float) -> dict[str, Any]:
    # A topic may be called as a column of a bar is: a line has a name of its own.
    lines = [ChartLine(name, f"line {number}", number) for number, name in enumerate(names, 1)]
    bars_of_all = same_bars(of_each)
    ended = [_bar(parts, lines, [sum(part[name] for name in ENDED) for part in parts]) for parts in bars_of_all]
    ran = [_bar(parts, lines, [part["run_p95_s"] for part in parts]) for parts in bars_of_all]
    return {
        "throughput": chart(ended, lines, "", per_s=True, enough_s=enough_s),
        "latencies": chart(ran, lines, "s"),
    }


def same_bars(of_each: list[list[Row]]) -> list[list[Row]]:
    """Return, bar by bar, those of all lines that begin at the same time.

    The lines are read one after the other. When a bar begins in between, the later ones have it, and no longer have the oldest.
    """
    by_time = [{bar["at"]: bar for bar in bars} for bars in of_each]
    times = set.intersection(*map(set, by_time)) if by_time else ()
    return [[bars[at] for bars in by_time] for at in sorted(times)]


def _bar(parts: list[Row], lines: list[ChartLine], values: list[Any]) -> Row:
    """Return the same bar of all lines: that of the one that was read last is the longest."""
    columns = [line.column for line in lines]
    return {"at": parts[0]["at"], "s": max(part["s"] for part in parts)} | dict(zip(columns, values, strict=True))
