"""Schedules: messages that are published by cron expressions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Request
from pydantic import AfterValidator, Field
from starlette.responses import Response

from pgrouse.client.call import Call, run_async
from pgrouse.client.calls import schedule
from pgrouse.client.queries import schedule as queries
from pgrouse.client.queries.schedule import PastRun, Schedule
from pgrouse.config import duration
from pgrouse.config.policy.own_policy import OwnBackoff
from pgrouse.config.policy.policy_settings import Backoff
from pgrouse.values.jsonb import Raw, encode
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, reading, run_read, writing
from pgrouse.web.access.redaction import shown_json
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.http.problem import Problem
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.description.problem_responses import responses
from pgrouse.web.v1.model import (
    DAY,
    MAYBE,
    CursorQuery,
    Json,
    JsonObject,
    Label,
    Limit,
    OwnRetention,
    OwnTimeout,
    Removal,
    RequestModel,
    ResponseModel,
    S,
    Seconds,
    Text,
    Topic,
    example,
    members_of,
    plain,
)
from pgrouse.web.v1.response import ApiResponse, raw
from pgrouse.web.v1.route import StrictRoute

T = TypeVar("T")

router = APIRouter(prefix="/v1/schedules", tags=["schedules"], route_class=StrictRoute)

Cron = Annotated[str, Field(min_length=1, max_length=200, examples=["0 3 * * *"]), AfterValidator(plain)]
UpToADay = Annotated[Seconds, duration.between(0 * S, DAY)]
TimeZone = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(plain)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$", examples=["nightly"])]


class NewSchedule(RequestModel):
    """A schedule to add."""

    model_config = example(name="nightly", topic="reports.build", payload={"kind": "daily"}, time_zone="Europe/Berlin")

    name: Name
    cron: Cron
    """The five fields of cron, or six with the second before them."""
    topic: Topic
    """The topic that it publishes to."""
    payload: Json = Field(default_factory=lambda: Raw("{}"))
    time_zone: TimeZone = "UTC"
    channel: Label | None = None
    key: Label | None = None
    priority: int = Field(default=5, ge=0, le=9)
    max_attempts: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Overrides the topic's `max_attempts`; 0 is no limit."""
    timeout: OwnTimeout | None = None
    """How long an attempt may run; overrides the topic's."""
    backoff: OwnBackoff | None = None
    """How long to wait before the next attempt: a kind, or an object with `kind` and its other parts; overrides the
    topic's."""
    retention: OwnRetention | None = None
    """How long the archive keeps each message; overrides the topic's."""
    headers: JsonObject | None = None
    jitter: UpToADay | None = None
    missed: Literal["skip", "once", "all"] = "once"
    """What to publish for ticks that were missed: nothing, one message for all, or one message each."""
    missed_limit: int = Field(default=100, ge=1, le=1000)
    while_paused: Literal["publish", "skip"] = "publish"


class ScheduleChangeRequest(RequestModel):
    """What to change of a schedule."""

    model_config = example(cron="30 3 * * *", headers={"team": "reports"})

    cron: Cron = MAYBE
    """The five fields of cron, or six with the second before them."""
    topic: Topic = MAYBE
    """The topic that it publishes to."""
    payload: Json = None
    time_zone: TimeZone = MAYBE
    channel: Label | None = None
    """null: none."""
    key: Label | None = None
    """null: none."""
    priority: Annotated[int, Field(ge=0, le=9)] = MAYBE
    max_attempts: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """null: what the topic says."""
    timeout: OwnTimeout | None = None
    """null: what the topic says."""
    backoff: OwnBackoff | None = None
    """null: what the topic says."""
    retention: OwnRetention | None = None
    """null: what the topic says."""
    headers: JsonObject | None = None
    """null: none."""
    jitter: UpToADay = MAYBE
    missed: Literal["skip", "once", "all"] = MAYBE
    """What happens with ticks that were missed."""
    missed_limit: Annotated[int, Field(ge=1, le=1000)] = MAYBE
    while_paused: Literal["publish", "skip"] = MAYBE


@members_of(Schedule)
class ScheduleDetail(ResponseModel):
    """A schedule."""

    model_config = example(
        name="nightly",
        topic="reports.build",
        payload={"kind": "daily"},
        next_tick="2027-02-01T02:00:00+00:00",
        last_tick="2027-01-31T02:00:00+00:00",
        last_fired_at="2027-01-31T02:00:00+00:00",
        last_message_id=7,
        state="on",
    )

    headers: dict[str, Any] | str | None
    """A text says why they are not shown."""


class SchedulePage(ResponseModel):
    """A page of schedules, ordered by name."""

    schedules: list[ScheduleDetail]
    next: str | None


class SchedulePauseRequest(RequestModel):
    """Why the schedule is paused."""

    model_config = example(reason="the warehouse is being moved")

    reason: Text | None = None


class SchedulePauseResult(ResponseModel):
    """Whether the schedule was running before."""

    was_running: bool


class ScheduleResumeResult(ResponseModel):
    """Whether the schedule was paused before."""

    was_paused: bool


@members_of(schedule.ScheduleRun)
class RunResult(ResponseModel):
    """The outcome of publishing the message of the schedule."""

    model_config = example(id=7)


@members_of(PastRun, without=("schedule",))
class ScheduleRunDetail(ResponseModel):
    """One tick of a schedule, or one run by hand."""

    model_config = example(tick="2027-01-31T02:00:00+00:00", outcome="published", message_id=7)


class ScheduleRuns(ResponseModel):
    """The latest runs of a schedule, the latest first."""

    runs: list[ScheduleRunDetail]
    """The runs, the latest first."""


@router.get("", response_model=SchedulePage, summary="List schedules")
async def list_schedules(
    request: Request,
    caller: Viewer,
    cursor_: CursorQuery = None,
    limit: Limit = 100,
) -> Response:
    """List the schedules."""
    after = cursor.decode_name("schedules", cursor_)
    found = await run_read(request, queries.find_schedules(after=after, topics=caller.limited_to, most=limit))
    end = cursor.encode_end("schedules", [each.name for each in found], limit)
    return ApiResponse({"schedules": [_detail(caller, each) for each in found], "next": end})


@router.get("/{name}", response_model=ScheduleDetail, summary="Show a schedule", responses=responses(404))
async def get_schedule(request: Request, caller: Viewer, name: Name) -> Response:
    """Return a schedule."""
    async with reading(request) as conn:
        found = await read_visible(conn, caller, Role.VIEWER, name)
    return ApiResponse(_detail(caller, found))


@router.get(
    "/{name}/runs", response_model=ScheduleRuns, summary="List the runs of a schedule", responses=responses(404)
)
async def list_schedule_runs(request: Request, caller: Viewer, name: Name, limit: Limit = 100) -> Response:
    """List the latest runs, with the ticks that were left out."""
    async with reading(request) as conn:
        await read_visible(conn, caller, Role.VIEWER, name)
        found = await run_async(conn, queries.last_runs(name, limit))
    return ApiResponse({"runs": list(map(ScheduleRunDetail.of, found))})


def _detail(caller: Caller, found: Schedule) -> dict[str, Any]:
    payload = shown_json(caller, found.topic, "payload", found.payload_json)
    headers = shown_json(caller, found.topic, "headers", found.headers_json)
    return ScheduleDetail.of(found, payload=raw(payload), headers=raw(headers))


async def read_visible(conn: Connection, caller: Caller, role: Role, name: str) -> Schedule:
    """Return a schedule.

    Raises:
        Problem: 404, the caller may not see its topic, or there is none; 403, it does not have the role for the topic.
    """
    found = await run_async(conn, queries.find_schedule(name))
    if found is None or not caller.sees(found.topic):
        raise Problem(404, f"there is no schedule {name}", "not_found")
    check_permission(caller, role, found.topic)
    return found


@router.post("", status_code=201, response_model=ScheduleDetail, summary="Add a schedule", responses=responses(409))
async def add_schedule(request: Request, caller: Operator, body: NewSchedule) -> Response:
    """Add a schedule that publishes a message at the times of a cron expression."""
    check_permission(caller, Role.OPERATOR, body.topic)
    async with writing(request, caller) as conn:
        await run_async(conn, queries.add_schedule(columns(body, NewSchedule.model_fields)))
        found = await read_visible(conn, caller, Role.OPERATOR, body.name)
    return ApiResponse(_detail(caller, found), 201, {"Location": f"/v1/schedules/{quote(body.name, safe='')}"})


def columns(body: NewSchedule | ScheduleChangeRequest, given: Iterable[str]) -> dict[str, Any]:
    """Return members of a body as the columns that are sent."""
    values = {name: getattr(body, name) for name in given}
    return {name: _column(name, value) for name, value in values.items()}


def _column(name: str, value: Any) -> Any:
    if isinstance(value, Backoff):
        return encode(value, name)
    return value.text if isinstance(value, Raw) else value


@router.patch("/{name}", response_model=ScheduleDetail, summary="Change a schedule", responses=responses(404))
async def change_schedule(request: Request, caller: Operator, name: Name, body: ScheduleChangeRequest) -> Response:
    """Change what is given; the rest stays. null removes what a schedule need not have."""
    if body.topic is not None:
        check_permission(caller, Role.OPERATOR, body.topic)
    changes = columns(body, body.model_fields_set)
    async with writing(request, caller) as conn:
        found = await read_visible(conn, caller, Role.OPERATOR, name)
        if changes:
            await run_async(conn, queries.change_schedule(name, changes))
            found = await read_visible(conn, caller, Role.OPERATOR, name)
    return ApiResponse(_detail(caller, found))


@router.delete("/{name}", response_model=Removal, summary="Remove a schedule", responses=responses(404))
async def remove_schedule(request: Request, caller: Operator, name: Name) -> Response:
    """Remove a schedule; messages that it published stay."""
    async with writing(request, caller) as conn:
        await read_visible(conn, caller, Role.OPERATOR, name)
        await run_async(conn, queries.delete_schedule(name))
    return ApiResponse({"removed": name})


@router.post("/{name}/pause", response_model=SchedulePauseResult, summary="Pause a schedule", responses=responses(404))
async def pause_schedule(request: Request, caller: Operator, name: Name, body: SchedulePauseRequest) -> Response:
    """Pause a schedule until it is resumed."""
    was_running = await operate(request, caller, name, schedule.pause_schedule(name, body.reason))
    return ApiResponse({"was_running": was_running})


@router.post(
    "/{name}/resume", response_model=ScheduleResumeResult, summary="Resume a schedule", responses=responses(404)
)
async def resume_schedule(request: Request, caller: Operator, name: Name) -> Response:
    """Resume a schedule; it continues with its next tick."""
    return ApiResponse({"was_paused": await operate(request, caller, name, schedule.resume_schedule(name))})


@router.post("/{name}/run", response_model=RunResult, summary="Run a schedule now", responses=responses(404))
async def run_schedule(request: Request, caller: Operator, name: Name) -> Response:
    """Publish the message of a schedule now; its next ticks do not change."""
    ran = await operate(request, caller, name, schedule.run_schedule(name))
    return ApiResponse(RunResult.of(ran))


async def operate(request: Request, caller: Caller, name: str, call: Call[T]) -> T:
    """Do something to a schedule, if the caller may with its topic.

    Raises:
        Problem: 403; 404.
    """
    async with writing(request, caller) as conn:
        await read_visible(conn, caller, Role.OPERATOR, name)
        return await run_async(conn, call)
