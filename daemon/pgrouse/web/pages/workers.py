"""Workers: their state, topics, listener and running messages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Query, Request
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls.worker import drain_worker, scale_worker
from pgrouse.client.queries.worker import find_workers
from pgrouse.web import view
from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import Connection, Row
from pgrouse.web.page import render
from pgrouse.web.problem import Problem
from pgrouse.web.registered_worker import check_operates
from pgrouse.web.security import require_role
from pgrouse.web.view import Context, View

router = APIRouter(include_in_schema=False)

MAX_ROWS = 200
# Of the messages that one worker has in flight so many are shown.
MAX_SHOWN = 5
Viewer = Annotated[Caller, Depends(require_role(Role.VIEWER))]
Operator = Annotated[Caller, Depends(require_role(Role.OPERATOR))]

ARMED = b"SELECT s.worker FROM messages.sleeper AS s WHERE s.armed_until > clock_timestamp()"
# The locked rows are few; of each worker those that run longest. The claim loops of a daemon claim under its name and their number.
RUNNING = b"""
  SELECT r.worker, r.id, r.topic, r.channel, r.attempts, r.locked_at, r.lock_expires_at, r.progress, r.total
  FROM (
    SELECT m.worker, m.id, m.topic, m.channel, m.attempts, m.locked_at, m.lock_expires_at, m.progress,
           row_number() OVER (PARTITION BY m.worker ORDER BY m.locked_at, m.id) AS place,
           count(*) OVER (PARTITION BY m.worker) AS total
    FROM (
      SELECT CASE WHEN m.locked_by LIKE 'http:%%' THEN m.locked_by ELSE regexp_replace(m.locked_by, '/[0-9]+$', '') END AS worker, m.id, m.topic, m.channel, m.attempts, m.locked_at, m.lock_expires_at, m.progress
      FROM messages.message AS m WHERE m.claim_id IS NOT NULL LIMIT 20000
    ) AS m
  ) AS r
  WHERE r.place <= %s
  ORDER BY r.worker, r.place"""
STATE_KINDS = {"working": "good", "draining": "info", "stopping": "info", "silent": "warn", "gone": ""}
LISTENER_KINDS = {"listening": "good", "connecting": "warn", "degraded": "warn"}


async def read_context(conn: Connection, caller: Caller, _subject: str) -> Context:
    """Read the workers of the topics that the caller may see."""
    found = await run_async(conn, find_workers(MAX_ROWS))
    armed = {row["worker"] for row in await (await conn.execute(ARMED)).fetchall()}
    running: dict[str, list[Row]] = defaultdict(list)
    # Of the rows, not of the worker's last report: that is some seconds old, and the list below it is not.
    in_flight: dict[str, int] = {}
    for row in await (await conn.execute(RUNNING, [MAX_SHOWN])).fetchall():
        in_flight[row["worker"]] = row["total"]
        if caller.sees(row["topic"]):
            running[row["worker"]].append(row | {"done": _share(row["progress"])})
    seen = [
        asdict(each)
        | {"status": each.status, "is_armed": each.name in armed}
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


def _share(progress: Any) -> str | None:
    """Return how far a message is, in words."""
    if not isinstance(progress, dict):
        return None
    done, total, unit = progress.get("done"), progress.get("total"), progress.get("unit") or ""
    if not isinstance(done, int | float):
        return None
    if isinstance(total, int | float) and total > 0:
        return f"{done:,g} of {total:,g} {unit}".strip() + f" ({100 * done / total:.0f} %)"
    return f"{done:,g} {unit}".strip()


VIEW = View("workers", read_context, parts=("list",))


@router.get("/workers")
async def workers(request: Request, caller: Viewer) -> Response:
    """Show the page."""
    return await view.show(request, caller, VIEW)


@router.post("/workers/drain")
async def drain(request: Request, caller: Operator, name: Annotated[str, Form(max_length=200)]) -> Response:
    """Ask a worker to claim nothing more, to end what runs, and to stop."""
    async with request.app.state.db.write(caller) as conn:
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
    async with request.app.state.db.read() as conn:
        await check_operates(conn, caller, name)
        found = await run_async(conn, find_workers(MAX_ROWS))
    chosen = next((each for each in found if each.name == name and each.kind == "daemon"), None)
    if chosen is None:
        raise Problem(404, f"worker {name} cannot be scaled: it works over HTTP, or has ended", "not_found")
    return render(request, "workers/scale.html", worker=chosen)


@router.post("/workers/scale")
async def scale(
    request: Request,
    caller: Operator,
    name: Annotated[str, Form(max_length=200)],
    concurrency: Annotated[int | None, Form(ge=1, le=10_000)] = None,
) -> Response:
    """Let a worker run so many handlers at once; without a number, as many as it is configured for."""
    async with request.app.state.db.write(caller) as conn:
        await check_operates(conn, caller, name)
        await run_async(conn, scale_worker(name, concurrency))
    return await view.redirect(request, "/workers")
