"""Schedules: messages that are published by cron expressions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from psycopg import sql
from pydantic import Field
from starlette.responses import Response

from pgrouse.client.call import Call, run_async
from pgrouse.client.calls import schedule
from pgrouse.jsonb import Raw
from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import Connection
from pgrouse.web.problem import Problem
from pgrouse.web.security import check_permission
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.caller import Operator, Viewer
from pgrouse.web.v1.model import (
    Cursor,
    Json,
    JsonObject,
    Label,
    Limit,
    RequestModel,
    ResponseModel,
    Text,
    TimestampText,
    Topic,
    Wait,
    example,
)
from pgrouse.web.v1.problem_responses import responses
from pgrouse.web.v1.response import ApiResponse, with_raw
from pgrouse.web.v1.route import StrictRoute

T = TypeVar("T")

router = APIRouter(prefix="/v1/schedules", tags=["schedules"], route_class=StrictRoute)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$", examples=["nightly"])]


class NewSchedule(RequestModel):
    """A schedule to add."""

    model_config = example(
        name="nightly", cron="0 3 * * *", topic="reports.build", payload={"kind": "daily"}, time_zone="Europe/Berlin"
    )

    name: Name
    cron: Annotated[Text, Field(max_length=200, examples=["0 3 * * *"])]
    """The five fields of cron."""
    topic: Topic
    """The topic that it publishes to."""
    payload: Json = Field(default_factory=lambda: Raw("{}"))
    time_zone: Annotated[Text, Field(max_length=100)] = "UTC"
    channel: Label | None = None
    key: Label | None = None
    priority: int = Field(default=5, ge=0, le=9)
    headers: JsonObject | None = None
    jitter: Wait | None = None
    missed: Literal["skip", "once", "all"] = "once"
    """What to publish for ticks that were missed: nothing, one message for all, or one message each."""
    missed_limit: int = Field(default=100, ge=1, le=1000)


class ScheduleDetail(ResponseModel):
    """A schedule."""

    model_config = example(
        name="nightly",
        cron="0 3 * * *",
        time_zone="Europe/Berlin",
        topic="reports.build",
        channel=None,
        key=None,
        priority=5,
        payload={"kind": "daily"},
        headers=None,
        jitter=0.0,
        missed="once",
        missed_limit=100,
        paused_at=None,
        paused_by=None,
        paused_reason=None,
        next_tick="2027-02-01T02:00:00+00:00",
        last_tick="2027-01-31T02:00:00+00:00",
        last_fired_at="2027-01-31T02:00:00+00:00",
        last_message_id=7,
        last_error=None,
        failed_at=None,
        failures=0,
        retry_at=None,
        created_at="2027-01-01T08:00:00+00:00",
        created_by="ci",
    )

    name: str
    """The name of the schedule."""
    cron: str
    time_zone: str
    topic: str
    """The topic that it publishes to."""
    channel: str | None
    key: str | None
    priority: int
    payload: Any
    headers: dict[str, Any] | None
    jitter: float
    """Each message is delayed by a random time up to this, in seconds."""
    missed: str
    """What happens with ticks that were missed: skip, once or all."""
    missed_limit: int
    paused_at: TimestampText | None
    paused_by: str | None
    """The operator who paused it."""
    paused_reason: str | None
    """Why it is paused."""
    next_tick: TimestampText | None
    """null: no tick will come."""
    last_tick: TimestampText | None
    last_fired_at: TimestampText | None
    """When it last published."""
    last_message_id: int | None
    """The message that it last published."""
    last_error: str | None
    """Why the last tick published nothing."""
    failed_at: TimestampText | None
    """When a tick last published nothing because of an error."""
    failures: int
    """Of ticks, one after the other."""
    retry_at: TimestampText | None
    """When a tick that failed is tried again."""
    created_at: TimestampText
    created_by: str
    """The operator who added it."""


class SchedulePage(ResponseModel):
    """A page of schedules, ordered by name."""

    model_config = example(schedules=[], next=None)

    schedules: list[ScheduleDetail]
    next: str | None


class SchedulePauseRequest(RequestModel):
    """Why the schedule is paused."""

    model_config = example(reason="the warehouse is being moved")

    reason: Text | None = None


class SchedulePauseResult(ResponseModel):
    """Whether the schedule was running before."""

    model_config = example(was_running=True)

    was_running: bool


class ScheduleResumeResult(ResponseModel):
    """Whether the schedule was paused before."""

    model_config = example(was_paused=True)

    was_paused: bool


class RunResult(ResponseModel):
    """The outcome of publishing the message of the schedule."""

    model_config = example(id=7, outcome="inserted")

    id: int | None
    """The id of the message; null if it was dropped."""
    outcome: str
    """As of a publish: inserted, replaced, ignored, appended, held, or dropped."""


class ScheduleRemoval(ResponseModel):
    """The schedule that was removed."""

    model_config = example(removed="nightly")

    removed: str


SELECT = b"""
    SELECT s.name, s.cron, s.time_zone, s.topic, s.channel, s.key, s.priority, s.payload::text, s.headers::text, s.jitter, s.missed,
           s.missed_limit, s.paused_at, s.paused_by, s.paused_reason, s.next_tick, s.last_tick, s.last_fired_at, s.last_message_id,
           s.last_error, s.failed_at, s.failures, s.retry_at, s.created_at, s.created_by
    FROM messages.schedule AS s"""
SELECT_PAGE = SELECT + b" WHERE s.name > %s AND (%s::text[] IS NULL OR s.topic LIKE ANY (%s)) ORDER BY s.name LIMIT %s"
SELECT_ONE = SELECT + b" WHERE s.name = %s"


@router.get("", response_model=SchedulePage, summary="List schedules")
async def list_schedules(
    request: Request,
    caller: Viewer,
    cursor_: Annotated[Cursor | None, Query(alias="cursor")] = None,
    limit: Limit = 100,
) -> Response:
    """List the schedules."""
    like = None if caller.sees_all else caller.like
    place = cursor.decode("schedules", cursor_) or ""
    if not isinstance(place, str) or not place.isprintable():
        raise Problem(422, "cursor: not a cursor of this list; use `next` of the previous page", "invalid_cursor")
    async with request.app.state.db.read() as conn:
        rows = await (await conn.execute(SELECT_PAGE, [place, like, like, limit])).fetchall()
    end = cursor.encode("schedules", rows[-1]["name"]) if len(rows) == limit else None
    return ApiResponse({"schedules": [with_raw(row, "payload", "headers") for row in rows], "next": end})


@router.get("/{name}", response_model=ScheduleDetail, summary="Show a schedule", responses=responses(404))
async def get_schedule(request: Request, caller: Viewer, name: Name) -> Response:
    """Return a schedule."""
    async with request.app.state.db.read() as conn:
        row = await _read_visible(conn, caller, Role.VIEWER, name)
    return ApiResponse(with_raw(row, "payload", "headers"))


async def _read_visible(conn: Connection, caller: Caller, role: Role, name: str) -> dict[str, Any]:
    row = await (await conn.execute(SELECT_ONE, [name])).fetchone()
    if row is None or not caller.sees(row["topic"]):
        raise Problem(404, f"there is no schedule {name}", "not_found")
    check_permission(caller, role, row["topic"])
    return row


@router.post("", status_code=201, response_model=ScheduleDetail, summary="Add a schedule", responses=responses(409))
async def add_schedule(request: Request, caller: Operator, body: NewSchedule) -> Response:
    """Add a schedule that publishes a message at the times of a cron expression."""
    check_permission(caller, Role.OPERATOR, body.topic)
    columns = {name: value for name in NewSchedule.model_fields if (value := getattr(body, name)) is not None}
    columns["payload"] = body.payload.text
    if body.headers is not None:
        columns["headers"] = body.headers.text
    insert = sql.SQL("INSERT INTO messages.schedule ({}) VALUES ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(map(sql.Placeholder, columns))
    )
    async with request.app.state.db.write(caller) as conn:
        await conn.execute(insert, columns)
        row = await _read_visible(conn, caller, Role.OPERATOR, body.name)
    return ApiResponse(
        with_raw(row, "payload", "headers"), 201, {"Location": f"/v1/schedules/{quote(body.name, safe='')}"}
    )


@router.delete("/{name}", response_model=ScheduleRemoval, summary="Remove a schedule", responses=responses(404))
async def remove_schedule(request: Request, caller: Operator, name: Name) -> Response:
    """Remove a schedule; messages that it published stay."""
    async with request.app.state.db.write(caller) as conn:
        await _read_visible(conn, caller, Role.OPERATOR, name)
        await conn.execute(b"DELETE FROM messages.schedule AS s WHERE s.name = %s", [name])
    return ApiResponse({"removed": name})


@router.post("/{name}/pause", response_model=SchedulePauseResult, summary="Pause a schedule", responses=responses(404))
async def pause_schedule(request: Request, caller: Operator, name: Name, body: SchedulePauseRequest) -> Response:
    """Pause a schedule until it is resumed."""
    was_running = await _run(request, caller, name, schedule.pause_schedule(name, body.reason))
    return ApiResponse({"was_running": was_running})


@router.post(
    "/{name}/resume", response_model=ScheduleResumeResult, summary="Resume a schedule", responses=responses(404)
)
async def resume_schedule(request: Request, caller: Operator, name: Name) -> Response:
    """Resume a schedule; it continues with its next tick."""
    return ApiResponse({"was_paused": await _run(request, caller, name, schedule.resume_schedule(name))})


@router.post("/{name}/run", response_model=RunResult, summary="Run a schedule now", responses=responses(404))
async def run_schedule(request: Request, caller: Operator, name: Name) -> Response:
    """Publish the message of a schedule now; its next ticks do not change."""
    ran = await _run(request, caller, name, schedule.run_schedule(name))
    return ApiResponse(asdict(ran))


async def _run(request: Request, caller: Caller, name: str, call: Call[T]) -> T:
    async with request.app.state.db.write(caller) as conn:
        await _read_visible(conn, caller, Role.OPERATOR, name)
        return await run_async(conn, call)
