"""Workers: their state, topics, listener and running messages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls.processing.worker import drain_worker, scale_worker
from pgrouse.client.queries.worker import armed_workers, find_held, find_worker, find_workers
from pgrouse.values.topic_pattern import is_pattern
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, Row, reading, writing
from pgrouse.web.access.redaction import shown_json
from pgrouse.web.access.registered_worker import check_operates
from pgrouse.web.access.security import Operator, Viewer
from pgrouse.web.http.problem import Problem
from pgrouse.web.page import message_detail, view
from pgrouse.web.page.page import render
from pgrouse.web.page.view import Context, View

router = APIRouter()

MAX_ROWS = 200
# The maximum number of messages in flight that are shown of one worker.
MAX_SHOWN = 5

STATE_KINDS = {"working": "good", "draining": "info", "stopping": "info", "silent": "warn", "gone": ""}
LISTENER_KINDS = {"listening": "good", "connecting": "warn", "degraded": "warn"}


async def read_context(conn: Connection, caller: Caller, _subject: str) -> Context:
    """Read the workers of the topics that the caller may see."""
    found = await run_async(conn, find_workers(MAX_ROWS))
    armed = await run_async(conn, armed_workers())
    running: dict[str, list[Row]] = defaultdict(list)
    # Counted from the rows, not from the worker's last report: the report is some seconds old, and the list below is
    # not.
    in_flight: dict[str, int] = {}
    for each in await run_async(conn, find_held(MAX_SHOWN)):
        in_flight[each.worker] = each.total
        if caller.sees(each.topic):
            reported = shown_json(caller, each.topic, "progress", each.progress_json)
            running[each.worker].append(asdict(each) | {"progress": message_detail.progress(reported)})
    seen = [
        asdict(each)
        | {"status": each.status, "topic_limits": each.topic_limits, "is_armed": each.name in armed}
        | {"topics": [topic for topic in each.topics if caller.sees(topic)]}
        for each in found
    ]
    return {
        "workers": [
            row
            | {"running": running.get(row["name"], []), "in_flight": in_flight.get(row["name"], 0)}
            | {"may_operate": _may_operate(caller, row)}
            for row in seen
            if row["topics"] or caller.sees_all
        ],
        "kinds": STATE_KINDS,
        "listener_kinds": LISTENER_KINDS,
    }


def _may_operate(caller: Caller, row: Row) -> bool:
    reads_requests = row["status"].get("engine") != "spark"
    return (
        reads_requests
        and row["state"] == "working"
        and all(caller.may(Role.OPERATOR, topic) for topic in row["topics"])
    )


VIEW = View("workers", read_context, parts=("list",))


@router.get("/workers")
async def workers(request: Request, caller: Viewer) -> Response:
    """Show the page."""
    return await view.show(request, caller, VIEW)


@router.post("/workers/drain")
async def drain(request: Request, caller: Operator, name: Annotated[str, Form(max_length=200)]) -> Response:
    """Ask a worker to claim nothing more, to end what runs, and to stop."""
    async with writing(request, caller) as conn:
        await check_operates(conn, caller, name)
        await run_async(conn, drain_worker(name))
    return await view.action_result(
        request, caller, VIEW, f"{name} is asked to drain: it stops when its running messages have ended."
    )


@router.get("/workers/scale")
async def ask_concurrency(
    request: Request, caller: Operator, name: Annotated[str, Query(max_length=200)] = ""
) -> Response:
    """Ask how many handlers a worker is to run at once."""
    async with reading(request) as conn:
        await check_operates(conn, caller, name)
        found = await run_async(conn, find_worker(name))
    if found is None or found.kind != "daemon":
        raise Problem(404, f"worker {name} cannot be scaled: it works over HTTP, or has ended", "not_found")
    limits = sorted(found.topic_limits.items())
    limited = [(topic, f"{topic}: now {most:,}") for topic, most in limits if not is_pattern(topic)]
    options = [("", "all its topics"), *limited] if limited else []
    return render(request, "workers/scale.html", worker=found, options=options)


@router.post("/workers/scale")
async def scale(
    request: Request,
    caller: Operator,
    name: Annotated[str, Form(max_length=200)],
    concurrency: Annotated[int | None, Form(ge=1, le=10_000)] = None,
    topic: Annotated[str | None, Form(max_length=200)] = None,
) -> Response:
    """Set how many handlers, or messages of a topic, a worker runs at once; without a number, as configured."""
    async with writing(request, caller) as conn:
        await check_operates(conn, caller, name)
        await run_async(conn, scale_worker(name, concurrency, topic or None))
    return await view.redirect(request, "/workers")
