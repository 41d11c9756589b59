"""Topics: message counts, rates, and whether they are paused."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls import operate
from pgrouse.client.calls.monitoring.state import TopicState, topic_state
from pgrouse.client.calls.monitoring.stats import latency
from pgrouse.client.queries.topic import EndedMinute, ended_minutes, find_policies
from pgrouse.config.duration import parse
from pgrouse.config.policy.topic_policy import DEFAULTS
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, Row, read_rows, run_write
from pgrouse.web.access.security import Operator, Viewer
from pgrouse.web.charts.chart import spark
from pgrouse.web.http.problem import Problem
from pgrouse.web.page import view
from pgrouse.web.page.view import Context, View
from pgrouse.web.pages.overview import VIEW as OVERVIEW
from pgrouse.web.pages.topics.topic import VIEW as TOPIC
from pgrouse.web.search.message_counts import read_topic_counts

router = APIRouter()

MAX_ROWS = 200
MAX_PATTERNS = 50

# The last five minutes are the rate.
RATE_MINUTES = 5


async def read_context(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read the topics whose name has the subject in it."""
    counts = await read_topic_counts(conn, caller)
    found = {row["topic"]: row for row in counts.rows if subject.lower() in row["topic"].lower()}
    if subject and not counts.are_all:
        # Each topic can be found by the beginning of its name.
        found |= {row["topic"]: row for row in (await read_topic_counts(conn, caller, subject)).rows}
    shown = [found[topic] for topic in sorted(found)[:MAX_ROWS]]
    names = [row["topic"] for row in shown]
    ended = _by_age(await run_async(conn, ended_minutes(names)))
    times = {row["topic"]: row for row in await read_rows(conn, latency())}
    states = {each.topic: each for each in await run_async(conn, topic_state([DEFAULTS, *names]))}
    return {
        "q": subject,
        "left_out": len(found) - len(shown),
        "are_all": counts.are_all,
        "topics": [row | _activity(states[row["topic"]], ended[row["topic"]], times) for row in shown],
        "all": states[DEFAULTS],
        "patterns": await _patterns(conn, caller),
    }


async def _patterns(conn: Connection, caller: Caller) -> list[str]:
    """Return the patterns that have a policy."""
    policies = await run_async(conn, find_policies([], ["paused_at"]))
    return [each for each in policies if each != DEFAULTS and caller.sees(each)][:MAX_PATTERNS]


def _by_age(minutes: list[EndedMinute]) -> dict[str, dict[int, int]]:
    """Return for each topic how many attempts ended, by how many minutes ago."""
    ended: dict[str, dict[int, int]] = defaultdict(dict)
    for each in minutes:
        ended[each.topic][each.minutes_ago] = each.ended
    return ended


def _activity(state: TopicState, ended: dict[int, int], times: dict[str, Row]) -> Row:
    """Return how a topic goes: its rate, times, line, and its state."""
    # The minute that runs is not over; together with the whole ones before it the error is small.
    recent = sum(ended.get(age, 0) for age in range(RATE_MINUTES))
    measured = times.get(state.topic, {})
    return {
        "per_s": recent / (RATE_MINUTES * 60) if measured else None,
        "run_p95_s": measured.get("run_p95_s"),
        "spark": spark([ended.get(age, 0) for age in range(59, -1, -1)]) if any(ended.values()) else None,
        "state": state,
    }


VIEW = View("topics", read_context, parts=("list", "all"))


@router.get("/topics")
async def topics(request: Request, caller: Viewer, q: str = "") -> Response:
    """Show the page."""
    return await view.show(request, caller, VIEW, q.strip()[:200])


@router.post("/topics/{topic}/pause")
async def pause(
    request: Request,
    topic: str,
    caller: Operator,
    reason: Annotated[str, Form(max_length=500)] = "",
    resume_in: Annotated[str, Form(max_length=50)] = "",
    until: Annotated[str, Form(max_length=50)] = "",
    channel: Annotated[str, Form(max_length=200)] = "",
    seen_on: Annotated[str, Form()] = "topic",
    q: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Stop a topic, one channel of it, or ('*') all topics."""
    await run_write(
        request,
        caller,
        operate.pause(
            topic,
            reason.strip() or None,
            _duration(resume_in),
            _time(until),
            channel or None,
        ),
    )
    return await _action_result(request, caller, seen_on, topic, q, f"{_name(topic, channel)} is paused.")


@router.post("/topics/{topic}/resume")
async def resume(
    request: Request,
    topic: str,
    caller: Operator,
    channel: Annotated[str, Form(max_length=200)] = "",
    seen_on: Annotated[str, Form()] = "topic",
    q: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """End a pause."""
    was_paused = await run_write(request, caller, operate.resume(topic, channel or None))
    text = f"{_name(topic, channel)} is resumed." if was_paused else f"{_name(topic, channel)} was not paused."
    return await _action_result(request, caller, seen_on, topic, q, text)


async def _action_result(request: Request, caller: Caller, seen_on: str, topic: str, q: str, text: str) -> Response:
    if seen_on == OVERVIEW.name:
        return await view.action_result(request, caller, OVERVIEW, text, "1h")
    if seen_on == VIEW.name:
        return await view.action_result(request, caller, VIEW, text, q)
    return await view.action_result(request, caller, TOPIC, text, topic)


def _duration(text: str) -> timedelta | None:
    if not text.strip():
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise Problem(422, f"the time of the pause: {error}", "invalid_value") from None


def _time(text: str) -> datetime | None:
    if not text.strip():
        return None
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Problem(422, 'until: use a time like "2026-02-01 12:00"', "invalid_value") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _name(topic: str, channel: str) -> str:
    if topic == DEFAULTS:
        return "Every topic"
    return f"Channel {channel} of {topic}" if channel else topic
