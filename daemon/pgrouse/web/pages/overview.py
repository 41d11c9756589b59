"""The overview: what the queue does at this moment, and whether anything is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from pgrouse.client.call import run_async
from pgrouse.client.calls import maintenance
from pgrouse.client.calls.monitoring.state import topic_state
from pgrouse.client.calls.monitoring.stats import COUNT_BOUND
from pgrouse.client.queries.archive import estimate_messages
from pgrouse.client.queries.clock import last_ticks
from pgrouse.client.queries.measure import measured_times
from pgrouse.client.queries.worker import count_workers
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, Row, read_rows, reading, writing
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.charts.result_charts import (
    MIN_BAR_S,
    RESULTS,
    count_results,
    read_bars,
    read_topic_charts,
    read_worker_charts,
    result_charts,
)
from pgrouse.web.http.problem import Problem
from pgrouse.web.page import view
from pgrouse.web.page.page import render
from pgrouse.web.page.problems import read_problems
from pgrouse.web.page.view import Context, View
from pgrouse.web.search.message_counts import read_topic_counts

router = APIRouter()

MAX_TOPICS = 8
BY_TOPIC, BY_WORKER = "topic", "worker"
BARS = 60
# As the list of topics has it.
RATE_S = 300
# By the word of the address: how long, and in words.
RANGES = {
    "1h": (timedelta(hours=1), "hour"),
    "6h": (timedelta(hours=6), "6 hours"),
    "24h": (timedelta(days=1), "day"),
    "7d": (timedelta(days=7), "7 days"),
}


@dataclass(frozen=True)
class QueueTotals:
    """What all topics together contain.

    Attributes:
        ready_is_estimate, delayed_is_estimate: the number of some topic is an estimate or is not known, and so is the
        sum.
        oldest_ready_s: None = nothing is ready.
    """

    ready: int
    delayed: int
    running: int
    dead: int
    oldest_ready_s: float | None
    ready_is_estimate: bool
    delayed_is_estimate: bool


async def read_context(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read the overview of a time, one of RANGES.

    With BY_TOPIC or BY_WORKER behind it the charts have a line for each of them.
    """
    period, _, grouping = subject.partition(",")
    if period not in RANGES or grouping not in ("", BY_TOPIC, BY_WORKER):
        raise Problem(404, f"there is no overview of {subject!r:.40}: use {', '.join(RANGES)}", "not_found")
    if grouping == BY_WORKER:
        check_permission(caller, Role.VIEWER)
    counts, ticked_at = await read_topic_counts(conn, caller), await run_async(conn, last_ticks())
    topics = counts.rows
    busy = [row for row in sorted(topics, key=_by_workload) if row["ready"] or row["running"] or row["delayed"]]
    states = {
        each.topic: each for each in await run_async(conn, topic_state([row["topic"] for row in busy[:MAX_TOPICS]]))
    }
    return {
        "range": period,
        "ranges": list(RANGES),
        "time": RANGES[period][1],
        "grouping": grouping,
        "groupings": [("", "result"), (BY_TOPIC, "topic"), *([(BY_WORKER, "worker")] * caller.sees_all)],
        "sums": _totals(topics, are_all=counts.are_all),
        "topics": [row | {"state": states[row["topic"]]} for row in busy[:MAX_TOPICS]],
        "topics_left": len(topics) - len(busy[:MAX_TOPICS]),
        "are_all_topics": counts.are_all,
        "workers": (await run_async(conn, count_workers()))[0],
        "ticked_at": ticked_at,
        "last_tick": max(ticked_at.items(), key=itemgetter(1), default=None),
        "estimates": (await run_async(conn, estimate_messages()))[0],
    }


async def read_measures(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read what the workers measured: the charts and the times."""
    period, _, grouping = subject.partition(",")
    since, _ = RANGES[period]
    bars = await read_bars(conn, caller, since, BARS)
    names, charts = await _read_charts(conn, caller, since, grouping) if grouping else ([], result_charts(bars))
    per_s, rate_s = _rate(bars)
    return {
        "latency": await run_async(conn, measured_times(since, caller.limited_to)),
        "per_s": per_s,
        "rate_s": rate_s,
        "ended": count_results(bars),
        "chart_names": names,
        "charts": charts,
    }


async def _read_charts(
    conn: Connection, caller: Caller, since: timedelta, grouping: str
) -> tuple[list[str], dict[str, Any]]:
    if grouping == BY_TOPIC:
        return await read_topic_charts(conn, caller, since, BARS)
    return await read_worker_charts(conn, since, BARS)


VIEW = View(
    "overview", read_context, parts=("problems", "figures", "state", "waiting", "times"), read_measures=read_measures
)


@router.get("/")
async def overview(
    request: Request,
    caller: Viewer,
    of: str = "1h",
    by: str = "",
) -> Response:
    """Show the page."""
    return await view.show(request, caller, VIEW, f"{of},{by}" if by else of)


@router.get("/problems/count")
async def count_problems(request: Request, caller: Viewer) -> Response:
    """Return the number of problems, for the navigation of a page that is not live."""
    async with reading(request) as conn:
        problems = await read_problems(conn, caller)
    return render(request, "frame/problem_count.html", problems=problems)


@router.post("/maintenance")
async def run_maintenance(request: Request, caller: Operator) -> Response:
    """Run all maintenance tasks now."""
    check_permission(caller, Role.OPERATOR)
    async with writing(request, caller) as conn:
        tasks = await read_rows(conn, maintenance.tick())
    text = "The maintenance ran." if tasks else "The maintenance is running already."
    return await view.action_result(request, caller, VIEW, text, "1h")


@router.get("/search")
async def search(caller: Viewer, q: str = "") -> Response:
    """Lead to a message by its id, else to the topics whose name has this in it."""
    found = q.strip()[:200]
    number = found.removeprefix("#")
    if number.isascii() and number.isdigit():
        return RedirectResponse(f"/messages/{number}", status_code=303)
    return RedirectResponse(f"/topics?q={quote(found, safe='')}" if found else "/topics", status_code=303)


def _totals(topics: list[Row], *, are_all: bool) -> QueueTotals:
    ages = [row["oldest_ready_s"] for row in topics if row["oldest_ready_s"] is not None]

    def total(name: str) -> int:
        return sum(row[name] for row in topics)

    return QueueTotals(
        total("ready"),
        total("delayed"),
        total("running"),
        total("dead_last_day"),
        max(ages, default=None),
        ready_is_estimate=not are_all or any(row["ready"] >= COUNT_BOUND for row in topics),
        delayed_is_estimate=not are_all or any(row["delayed"] >= COUNT_BOUND for row in topics),
    )


def _by_workload(row: Row) -> tuple[Any, ...]:
    """Order topics: those with most to do first, by the number of digits: rows do not jump with each message."""
    return (*(-len(str(row[name])) if row[name] else 0 for name in ("ready", "running", "delayed")), row["topic"])


def _rate(bars: list[Row]) -> tuple[float | None, float]:
    """Return how many attempts ended per second, and in how many seconds.

    These are the last bars that make up five minutes.
    """
    ended = seconds = 0.0
    for row in reversed(bars):
        if seconds >= RATE_S:
            break
        ended += sum(row[each.column] for each in RESULTS)
        seconds += row["s"]
    return (ended / seconds if seconds >= MIN_BAR_S else None), seconds
