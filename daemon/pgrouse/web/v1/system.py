"""The system as a whole: workers, statistics, maintenance, doctor, audit, tokens, exports."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls import export, maintenance, web
from pgrouse.client.calls.export import ExportStatus
from pgrouse.client.calls.monitoring.stats import COUNT_BOUND
from pgrouse.client.calls.processing import worker
from pgrouse.client.queries.audit import AuditedAction, find_actions
from pgrouse.client.queries.token import StoredToken, find_tokens
from pgrouse.client.queries.worker import RegisteredWorker, find_workers
from pgrouse.doctor.finding import Finding
from pgrouse.web.access.caller import Role
from pgrouse.web.access.database_pool import reading, run_read, run_write, writing
from pgrouse.web.access.redaction import shown_detail
from pgrouse.web.access.registered_worker import check_operates
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.background.doctor_run import current_doctor_run
from pgrouse.web.http.problem import Problem
from pgrouse.web.search.message_counts import read_topic_counts
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.description.problem_responses import responses
from pgrouse.web.v1.model import (
    CursorQuery,
    FleetName,
    Label,
    Limit,
    Removal,
    RequestModel,
    ResponseModel,
    TimestampText,
    Topic,
    example,
    members_of,
)
from pgrouse.web.v1.response import ApiResponse
from pgrouse.web.v1.route import StrictRoute
from pgrouse.web.v1.topics.topic import TopicCounts

router = APIRouter(prefix="/v1", route_class=StrictRoute)


@members_of(RegisteredWorker, without=("up", "age"))
class WorkerInfo(ResponseModel):
    """A registered worker."""

    model_config = example(
        topics=["orders.created"],
        started_at="2027-01-31T07:00:00+00:00",
        state="working",
        status={"in_flight": 3},
        topic_limits={"orders.created": 2},
    )

    status: dict[str, Any]
    topic_limits: dict[str, int]


class WorkerList(ResponseModel):
    """The workers that were seen in the last hour."""

    workers: list[WorkerInfo]


class DrainRequest(RequestModel):
    """The worker to drain."""

    name: Label


class DrainResult(ResponseModel):
    """The worker that was asked to drain."""

    draining: str


class ScaleRequest(RequestModel):
    """The worker to scale."""

    model_config = example(concurrency=20)

    name: Label
    concurrency: Annotated[int, Field(ge=1, le=10_000)] | None
    """How many handlers it runs at once, or messages of the topic; null: as many as it is configured for."""
    topic: Topic | None = None
    """A topic that has `worker_concurrency`, which this replaces for the worker."""


class ScaleResult(ResponseModel):
    """The worker that was scaled."""

    model_config = example(concurrency=20)

    name: str
    topic: str | None
    concurrency: int | None


class QueueStats(ResponseModel):
    """The message counts of the queue by topic."""

    exact_below: int
    """From here on, `ready` and `delayed` are estimates."""
    topics: list[TopicCounts]
    all_topics: bool
    """False: there are more topics than 1,000, and these matter most. `GET /v1/topics` lists all of them."""


@members_of(maintenance.TickTask)
class MaintenanceTask(ResponseModel):
    """How much a maintenance task did; -1: it failed, and the next tick tries it again."""


class MaintenanceResult(ResponseModel):
    """What each task did; empty if another tick is running."""

    tasks: list[MaintenanceTask]


@members_of(AuditedAction)
class AuditEntry(ResponseModel):
    """One action of an operator."""

    model_config = example(id=12, topic="orders.created", detail={"reason": "the relay is down"})

    id: int
    """The number of the entry."""


@members_of(Finding)
class DoctorFinding(ResponseModel):
    """The result of one check."""

    model_config = example(code="cron")

    level: str
    """ok, warn, or fail."""
    detail: str
    """More about it, as a list of the rows that were found; may be empty."""


class DoctorReport(ResponseModel):
    """The findings of the doctor."""

    at: TimestampText
    findings: list[DoctorFinding]


@members_of(StoredToken, without=("used", "expires"))
class TokenInfo(ResponseModel):
    """A token, without its secret."""

    model_config = example(name="ci", roles=["viewer"], topics=["orders.*"], state="good")


class TokenList(ResponseModel):
    """The tokens, ordered by name."""

    tokens: list[TokenInfo]
    """Also those that have expired or were revoked."""


class TokenRevocation(ResponseModel):
    """Whether the token was valid before."""

    was_good: bool
    """False: it had expired, or was revoked before."""


@members_of(ExportStatus)
class ExportInfo(ResponseModel):
    """An export of the archive, and whether the retention waits for it."""

    model_config = example(name="orders", lake="/lake/orders", advanced_at="2027-01-31T07:59:00+00:00")


class ExportList(ResponseModel):
    """The exports, ordered by name."""

    exports: list[ExportInfo]
    """The exports."""


class AuditPage(ResponseModel):
    """A page of the audit log, latest first."""

    entries: list[AuditEntry]
    next: str | None


MAX_WORKERS = 1000


@router.get("/workers", response_model=WorkerList, tags=["workers"], summary="List workers")
async def list_workers(request: Request, caller: Viewer) -> Response:
    """List the workers of the last hour that handle a topic of the caller.

    Each has those of its topics that the caller may see.
    """
    found = await run_read(request, find_workers(MAX_WORKERS))
    visible = [(each, [topic for topic in each.topics if caller.sees(topic)]) for each in found]
    rows = [_worker_info(each, topics) for each, topics in visible if topics or caller.sees_all]
    return ApiResponse({"workers": rows})


def _worker_info(found: RegisteredWorker, topics: list[str]) -> dict[str, Any]:
    limits = {topic: limit for topic, limit in found.topic_limits.items() if topic in topics}
    return WorkerInfo.of(found, topics=topics, topic_limits=limits)


@router.post(
    "/workers/drain", response_model=DrainResult, tags=["workers"], summary="Drain a worker", responses=responses(404)
)
async def drain_worker(request: Request, caller: Operator, body: DrainRequest) -> Response:
    """Ask a worker to claim nothing more, to finish its running messages, and to stop.

    It starts within seconds. Needs permission for all topics of the worker.
    """
    async with writing(request, caller) as conn:
        await check_operates(conn, caller, body.name)
        await run_async(conn, worker.drain_worker(body.name))
    return ApiResponse({"draining": body.name})


@router.post(
    "/workers/scale",
    response_model=ScaleResult,
    tags=["workers"],
    summary="Scale a worker",
    responses=responses(404),
)
async def scale_worker(request: Request, caller: Operator, body: ScaleRequest) -> Response:
    """Change how many handlers a worker runs at once, or how many messages of one topic, until it restarts.

    It applies within seconds; handlers that run are not stopped. Needs permission for all topics of the worker. A
    worker over HTTP can be scaled for a topic only: its claims say how many messages it takes.
    """
    async with writing(request, caller) as conn:
        await check_operates(conn, caller, body.name)
        await run_async(conn, worker.scale_worker(body.name, body.concurrency, body.topic))
    return ApiResponse({"name": body.name, "topic": body.topic, "concurrency": body.concurrency})


@router.get("/stats", response_model=QueueStats, tags=["stats"], summary="Get queue statistics")
async def get_stats(request: Request, caller: Viewer) -> Response:
    """Return the message counts by topic.

    From `exact_below` (1,000) on, `ready` and `delayed` are estimates; all else is exact.

    It has at most 1,000 topics; `all_topics` says whether there are no more.
    """
    async with reading(request) as conn:
        counts = await read_topic_counts(conn, caller)
    return ApiResponse({"exact_below": COUNT_BOUND, "topics": counts.rows, "all_topics": counts.are_all})


@router.post("/maintenance/run", response_model=MaintenanceResult, tags=["maintenance"], summary="Run the maintenance")
async def run_maintenance(request: Request, caller: Operator) -> Response:
    """Run all maintenance tasks now: expire locks and messages, purge old archive rows, fire schedules.

    The audit log records it.
    """
    check_permission(caller, Role.OPERATOR)
    done = await run_write(request, caller, maintenance.tick())
    return ApiResponse({"tasks": list(map(MaintenanceTask.of, done))})


@router.post("/reapers/{task}/run", response_model=MaintenanceTask, tags=["maintenance"], summary="Run one reaper")
async def run_reaper(
    request: Request, caller: Operator, task: Literal["expire_locks", "expire_messages", "purge"]
) -> Response:
    """Run one maintenance task: expire locks, expire messages, or delete archived messages older than their retention.

    Each run is bounded.
    """
    check_permission(caller, Role.OPERATOR)
    count = await run_write(request, caller, maintenance.run_maintenance(task))
    return ApiResponse({"task": task, "count": count})


@router.get("/doctor", response_model=DoctorReport, tags=["stats"], summary="Run the doctor")
async def get_doctor_report(request: Request, caller: Viewer) -> Response:
    """Return the findings of the doctor, most severe first; at most 15 seconds old.

    Needs permission for all topics, and may take some seconds.
    """
    check_permission(caller, Role.VIEWER)
    doctor_run = current_doctor_run(request.app)
    await doctor_run.refresh(request.app)
    return ApiResponse({"at": doctor_run.at, "findings": list(map(DoctorFinding.of, doctor_run.findings))})


@router.get("/audit", response_model=AuditPage, tags=["audit"], summary="List audit entries")
async def list_audit_entries(
    request: Request,
    caller: Operator,
    actor: Label | None = None,
    action: Label | None = None,
    topic: Topic | None = None,
    cursor_: CursorQuery = None,
    limit: Limit = 100,
) -> Response:
    """Return the actions of operators, latest first; for a token of some topics those whose topics it may all see."""
    if topic is not None:
        check_permission(caller, Role.OPERATOR, topic)
    call = find_actions(
        before=cursor.decode_id("audit", cursor_),
        topics=caller.limited_to,
        actor=actor,
        action=action,
        topic=topic,
        limit=limit,
    )
    found = await run_read(request, call)
    end = cursor.encode_end("audit", [each.id for each in found], limit)
    entries = [AuditEntry.of(each, detail=shown_detail(caller, each.topic, each.detail)) for each in found]
    return ApiResponse({"entries": entries, "next": end})


@router.get("/tokens", response_model=TokenList, tags=["tokens"], summary="List tokens")
async def list_tokens(request: Request, caller: Viewer) -> Response:
    """List the tokens, without their secrets. It needs the role for all topics."""
    check_permission(caller, Role.VIEWER)
    found = await run_read(request, find_tokens())
    return ApiResponse({"tokens": list(map(TokenInfo.of, found))})


@router.post(
    "/tokens/{name}/revoke",
    response_model=TokenRevocation,
    tags=["tokens"],
    summary="Revoke a token",
    responses=responses(404),
)
async def revoke_token(request: Request, caller: Operator, name: FleetName) -> Response:
    """End a token, and the sessions that were opened with it. It needs the role for all topics.

    Servers notice it within two seconds.
    """
    check_permission(caller, Role.OPERATOR)
    return ApiResponse({"was_good": await run_write(request, caller, web.revoke_token(name))})


@router.get("/exports", response_model=ExportList, tags=["exports"], summary="List exports")
async def list_exports(request: Request, caller: Viewer) -> Response:
    """List the exports of the archive. It needs the role for all topics."""
    check_permission(caller, Role.VIEWER)
    found = await run_read(request, export.list_exports())
    return ApiResponse({"exports": list(map(ExportInfo.of, found))})


@router.delete(
    "/exports/{name}", response_model=Removal, tags=["exports"], summary="Delete an export", responses=responses(404)
)
async def delete_export(request: Request, caller: Operator, name: FleetName) -> Response:
    """Forget an export, so that the retention does not wait for it. It needs the role for all topics."""
    check_permission(caller, Role.OPERATOR)
    if not await run_write(request, caller, export.delete_export(name)):
        raise Problem(404, f"there is no export {name}", "not_found")
    return ApiResponse({"removed": name})
