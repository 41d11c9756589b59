"""The whole: workers, statistics, maintenance, the audit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from pgrouse.web.caller import Role
from pgrouse.web.security import allow
from pgrouse.web.pages.doctor import last_examination
from pgrouse.web.problem import Problem
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.response import Answer, with_raw
from pgrouse.web.v1.caller import Operator, Viewer
from pgrouse.web.v1.model import REFUSALS, Body, Cursor, Label, Limit, Shape, Topic
from pgrouse.web.v1.route import Route

router = APIRouter(prefix="/v1", responses=REFUSALS, route_class=Route)


class Worker(Shape):
    """A worker of the registry."""

    name: str
    host: str
    pid: int
    version: str
    topics: list[str]
    concurrency: int
    started_at: str
    seen_at: str
    state: str
    """working, draining, stopping, or silent: not seen for 30 seconds, over HTTP for two minutes."""
    kind: str
    """daemon, or http: known by its claims; its `concurrency` is how many messages it asked for last."""
    status: dict[str, Any]


class Workers(Shape):
    """The workers of the last hour."""

    workers: list[Worker]


class Which(Body):
    """A worker by its name."""

    name: Label


class Drained(Shape):
    """It was asked to."""

    draining: str


class Standing(Shape):
    """What stands in the queue, by topic."""

    topics: list[dict[str, Any]]


class Task(Shape):
    """What a task did; -1: it failed, and is tried again by the next tick."""

    task: str
    did: int


class Done(Shape):
    """What was done; nothing, if another tick runs at this moment."""

    tasks: list[Task]


class Entry(Shape):
    """Something that somebody did."""

    id: int
    at: str
    actor: str
    action: str
    topic: str | None
    target: str | None
    detail: Any


class Finding(Shape):
    """What was found about one thing."""

    code: str
    level: str
    """ok, warn, or fail."""
    what: str
    mend: str | None
    detail: str


class Examined(Shape):
    """What the doctor found."""

    at: str
    findings: list[Finding]


class Audit(Shape):
    """A page of the audit, the latest first."""

    entries: list[Entry]
    next: str | None


WORKERS = b"""
    SELECT w.name, w.host, w.pid, w.version, w.topics, w.concurrency, w.started_at, w.seen_at, w.status::text, w.kind,
           w.drain_asked_at, w.drain_asked_by,
           CASE
             WHEN w.seen_at < clock_timestamp() - CASE w.kind WHEN 'http' THEN interval '2 minutes' ELSE interval '30 s' END THEN 'silent'
             WHEN w.stopping THEN 'stopping'
             WHEN w.drain_asked_at IS NOT NULL THEN 'draining'
             ELSE 'working'
           END AS state
    FROM messages.worker AS w ORDER BY w.name LIMIT 1000"""


@router.get("/workers", response_model=Workers, tags=["workers"], summary="List workers")
async def list_workers(request: Request, caller: Viewer) -> Response:
    """List the workers of the last hour: those that work one of the caller's topics, and of their topics these."""
    async with request.app.state.db.read() as conn:
        rows = await (await conn.execute(WORKERS)).fetchall()
    seen = [row | {"topics": [topic for topic in row["topics"] if caller.sees(topic)]} for row in rows]
    return Answer({"workers": [with_raw(row, "status") for row in seen if row["topics"] or caller.sees_all]})


@router.post("/workers/drain", response_model=Drained, tags=["workers"], summary="Drain a worker")
async def drain(request: Request, caller: Operator, body: Which) -> Response:
    """Ask a worker to claim nothing more, to end what runs, and to stop; it does within seconds. Needs all of its topics."""
    async with request.app.state.db.write(caller) as conn:
        found = await conn.execute(b"SELECT w.topics FROM messages.worker AS w WHERE w.name = %s", [body.name])
        row = await found.fetchone()
        if row is None or not (caller.sees_all or any(caller.sees(topic) for topic in row["topics"])):
            raise Problem(404, f"there is no worker {body.name}", "not_found")
        for topic in row["topics"]:
            allow(caller, Role.OPERATOR, topic)
        await conn.execute(b"SELECT messages.drain_worker(%s)", [body.name])
    return Answer({"draining": body.name})


@router.get("/stats", response_model=Standing, tags=["stats"], summary="Show what stands in the queue")
async def stats(request: Request, caller: Viewer) -> Response:
    """Return what stands in the queue, by topic. Counts end at 10,000, which then means "at least"."""
    async with request.app.state.db.read() as conn:
        rows = await (await conn.execute(b"SELECT s.* FROM messages.stats() AS s")).fetchall()
    return Answer({"topics": [row for row in rows if caller.sees(row["topic"])]})


@router.post("/maintenance/run", response_model=Done, tags=["maintenance"], summary="Run the maintenance")
async def run_maintenance(request: Request, caller: Operator) -> Response:
    """Run all maintenance functions now: expired locks and messages end, old ones are purged, schedules fire."""
    allow(caller, Role.OPERATOR)
    async with request.app.state.db.write(caller) as conn:
        rows = await (await conn.execute(b"SELECT t.task, t.did FROM messages.tick('hand') AS t")).fetchall()
    return Answer({"tasks": rows})


@router.post("/reapers/{task}/run", response_model=Task, tags=["maintenance"], summary="Run one reaper")
async def run_reaper(
    request: Request, caller: Operator, task: Literal["expire_locks", "expire_ttl", "purge"]
) -> Response:
    """End what is locked for too long or waits for too long, or delete from the archive what is older than its retention; each bounded."""
    allow(caller, Role.OPERATOR)
    async with request.app.state.db.write(caller) as conn:
        row = await (await conn.execute(b"SELECT messages.reap(%s) AS did", [task])).fetchone()
    return Answer({"task": task, "did": row["did"] if row else 0})


@router.get("/doctor", response_model=Examined, tags=["stats"], summary="Examine what goes wrong without a word")
async def doctor(request: Request, caller: Viewer) -> Response:
    """Return what the doctor finds, the worst first; at most 15 seconds old. Needs all topics, and may take some seconds."""
    allow(caller, Role.VIEWER)
    examined = last_examination(request.app)
    await examined.renew(request.app)
    return Answer({"at": examined.at, "findings": [asdict(each) for each in examined.findings]})


AUDIT = b"""
    SELECT a.id, a.at, a.actor, a.db_user, a.action, a.topic, a.target, a.detail::text FROM messages.audit AS a
    WHERE (%(before)s::bigint IS NULL OR a.id < %(before)s)
      AND (%(actor)s::text IS NULL OR a.actor = %(actor)s)
      AND (%(action)s::text IS NULL OR a.action = %(action)s)
      AND (%(topic)s::text IS NULL OR a.topic = %(topic)s)
      AND (%(like)s::text[] IS NULL OR a.topic LIKE ANY (%(like)s))
    ORDER BY a.id DESC LIMIT %(limit)s"""


@router.get("/audit", response_model=Audit, tags=["audit"], summary="Read the audit")
async def read_audit(
    request: Request,
    caller: Operator,
    actor: Label | None = None,
    action: Label | None = None,
    topic: Topic | None = None,
    cursor_: Annotated[Cursor | None, Query(alias="cursor")] = None,
    limit: Limit = 100,
) -> Response:
    """Return who did what by hand, the latest first."""
    values = {"actor": actor, "action": action, "topic": topic, "limit": limit}
    if topic is not None:
        allow(caller, Role.OPERATOR, topic)
    values |= {"like": None if caller.sees_all else caller.like, "before": cursor.read_id("audit", cursor_)}  # type: ignore[dict-item]
    async with request.app.state.db.read() as conn:
        rows = await (await conn.execute(AUDIT, values)).fetchall()
    end = cursor.write("audit", rows[-1]["id"]) if len(rows) == limit else None
    return Answer({"entries": [with_raw(row, "detail") for row in rows], "next": end})
