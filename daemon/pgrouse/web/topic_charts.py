"""Charts with a line for each of the topics that do most."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pgrouse.client.calls.stats import throughput
from pgrouse.web.caller import Caller
from pgrouse.web.chart import ChartLine, chart
from pgrouse.web.database_pool import Connection, Row, read_rows

# A chart has five colours.
MAX_TOPICS = 5
# Deferred and released attempts are not counted: nothing of them ended. now(), not messages.now(): the planner must see how little that is.
BUSIEST = b"""
  SELECT m.topic
  FROM messages.measure AS m
  WHERE m.minute >= now() - %(since)s::interval AND (%(all)s OR m.topic LIKE ANY (%(like)s))
  GROUP BY m.topic
  ORDER BY sum(m.success + m.retried + m.rejected + m.failed + m.lock_expired) DESC, m.topic
  LIMIT %(most)s"""
ENDED = ("success", "retried", "rejected", "failed", "lock_expired")


async def read_topic_charts(
    conn: Connection, caller: Caller, since: timedelta, bars: int, *, enough_s: float
) -> tuple[list[str], dict[str, Any]]:
    """Return the busiest topics that the caller may see, and their charts: attempts per second, and how long these ran (p95)."""
    values = {"since": since, "like": caller.like, "all": caller.sees_all, "most": MAX_TOPICS}
    topics = [row["topic"] for row in await (await conn.execute(BUSIEST, values)).fetchall()]
    of_each = [await read_rows(conn, throughput(since, topic, bars)) for topic in topics]
    # A topic may be called as a column of a bar is: a line has a name of its own.
    lines = [ChartLine(topic, f"topic {number}", number) for number, topic in enumerate(topics, 1)]
    bars_of_all = same_bars(of_each)
    ended = [_bar(parts, lines, [sum(part[name] for name in ENDED) for part in parts]) for parts in bars_of_all]
    ran = [_bar(parts, lines, [part["run_p95_s"] for part in parts]) for parts in bars_of_all]
    charts = {
        "throughput": chart(ended, lines, "", per_s=True, enough_s=enough_s),
        "latencies": chart(ran, lines, "s"),
    }
    return topics, charts


def same_bars(of_each: list[list[Row]]) -> list[list[Row]]:
    """Return, bar by bar, those of all topics that begin at the same time.

    The topics are read one after the other. When a bar begins in between, the later ones have it, and no longer have the oldest.
    """
    by_time = [{bar["at"]: bar for bar in bars} for bars in of_each]
    times = set.intersection(*map(set, by_time)) if by_time else ()
    return [[bars[at] for bars in by_time] for at in sorted(times)]


def _bar(parts: list[Row], lines: list[ChartLine], values: list[Any]) -> Row:
    """Return the same bar of all topics: that of the one that was read last is the longest."""
    columns = [line.column for line in lines]
    return {"at": parts[0]["at"], "s": max(part["s"] for part in parts)} | dict(zip(columns, values, strict=True))
