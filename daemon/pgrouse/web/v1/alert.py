"""What is wrong now, what the sinks of alerts were told about it, and what silences them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls.monitoring import alert as calls
from pgrouse.client.queries.alert import Incident, Silence, SinkRecord, find_incidents, find_silence, find_sinks
from pgrouse.config import duration
from pgrouse.web.access.caller import Role
from pgrouse.web.access.database_pool import reading, run_read, run_write, writing
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.http.problem import Problem
from pgrouse.web.page.problems import read_conditions
from pgrouse.web.page.silence import check_silenced, end_silence, read_silences
from pgrouse.web.v1.dead import Fingerprint
from pgrouse.web.v1.description.problem_responses import responses
from pgrouse.web.v1.model import (
    DAY,
    FleetName,
    Label,
    Limit,
    PathId,
    Removal,
    RequestModel,
    ResponseModel,
    Rule,
    RuledModel,
    S,
    Seconds,
    Text,
    Timestamp,
    at_least_one,
    exactly_one,
    example,
    members_of,
)
from pgrouse.web.v1.response import ApiResponse
from pgrouse.web.v1.route import StrictRoute

router = APIRouter(prefix="/v1", tags=["alerts"], route_class=StrictRoute)

SilenceId = Annotated[PathId, Path(description="The number of the silence.")]
LastingFor = Annotated[Seconds, duration.between(S, 3650 * DAY)]


@members_of(calls.OpenCondition)
class ConditionInfo(ResponseModel):
    """A problem that is open now."""

    model_config = example(
        kind="no_worker",
        severity="page",
        since="2027-01-31T07:50:00+00:00",
        what="messages of orders.created are ready, and no worker handles the topic",
        fix="start a daemon with a handler for orders.created",
    )

    fix: str
    """What to do. Empty for a token of some topics, if it would name workers of others."""


class ConditionList(ResponseModel):
    """The open problems, the worst first."""

    conditions: list[ConditionInfo]
    """The problems that are not silenced, at most 200."""


@members_of(calls.IncidentRow)
class IncidentInfo(ResponseModel):
    """A problem or a group of dead messages, from its begin to its end: one for each cause."""

    model_config = example(
        kind="dead_rate", severity="ticket", topic="orders.created", state="over", ended_at="2027-01-31T08:10:00+00:00"
    )


class IncidentList(ResponseModel):
    """The incidents, the worst first, and those that are over last."""

    incidents: list[IncidentInfo]
    """Those of the topics of the token; `limit` counts conditions and groups of dead messages by themselves."""


@members_of(Incident, without=("age",))
class AlertInfo(ResponseModel):
    """What one sink was told, or is told next, about one group of alerts."""

    model_config = example(sink="ops", kind="dead_message", severity="ticket", state="firing", error_fingerprint="8c1f")


class AlertList(ResponseModel):
    """What the sinks were told, the latest first."""

    alerts: list[AlertInfo]
    """One for each sink and group."""


@members_of(SinkRecord, without=("age",))
class SinkInfo(ResponseModel):
    """A sink of alerts, and whether alerts reach it. Its address and its secrets are only in the configuration."""

    model_config = example(name="ops", type="webhook", state="ok")


class SinkList(ResponseModel):
    """The sinks, ordered by name."""

    sinks: list[SinkInfo]
    """The sinks that a process has delivered to, or tried to."""


class AlertReplay(RequestModel):
    """Which alerts to send again."""

    model_config = example(sink="ops", since="1h")

    sink: FleetName | None = None
    """Only to this sink; to all sinks unless given."""
    since: LastingFor = timedelta(hours=1)
    """Those of this time; 1 hour unless given."""
    id: UUID | None = None
    """Only the alert with this id, however old it is."""


class AlertReplayResult(ResponseModel):
    """How many alerts are sent again."""

    replayed: int
    """How many; each has a new id and is marked as sent again."""


@members_of(Silence, without=("ends_in",))
class SilenceInfo(ResponseModel):
    """A silence: the alerts that match it are counted and not sent."""

    model_config = example(id=3, kind="dead_message", until="2027-01-31T10:00:00+00:00", reason="the relay is down")

    id: int
    """The number of the silence."""


class SilenceList(ResponseModel):
    """The silences that have not ended; those that end first come first."""

    silences: list[SilenceInfo]
    """The silences that concern only topics of the token."""


class NewSilence(RuledModel):
    """Which alerts are not sent, and for how long. They match all that is given."""

    model_config = example(kind="dead_message", topic="orders.created", ends_in="2h", reason="the relay is down")
    rules: ClassVar[tuple[Rule, ...]] = (
        at_least_one("kind", "topic", "error_fingerprint"),
        exactly_one("ends_in", "until"),
    )

    kind: Label | None = None
    """`dead_message`, `breaker`, or the kind of a condition."""
    topic: Label | None = None
    """A topic, or a pattern in which `*` stands for any characters."""
    error_fingerprint: Fingerprint | None = None
    """The fingerprint of an error, as a group of dead messages has it."""
    ends_in: LastingFor | None = None
    """When it ends, from now."""
    until: Timestamp | None = None
    """When it ends, instead of `ends_in`."""
    reason: Text | None = None
    """Why, for other operators."""


class SilenceEnd(ResponseModel):
    """Whether the silence had not ended before."""

    ended: bool
    """False: it had ended already."""


@router.get("/conditions", response_model=ConditionList, summary="List conditions")
async def list_conditions(request: Request, caller: Viewer) -> Response:
    """List what is wrong now, the worst first, with how to fix it.

    A token of some topics sees the conditions of these, and that workers are down.
    """
    async with reading(request) as conn:
        return ApiResponse({"conditions": await read_conditions(conn, caller)})


@router.get("/incidents", response_model=IncidentList, summary="List incidents")
async def list_incidents(
    request: Request,
    caller: Viewer,
    over: Annotated[bool, Query(description="Also those that ended in the last week.")] = False,
    limit: Limit = 100,
) -> Response:
    """List what goes on, one row for each cause, the worst first; with `over` also what has ended."""
    found = await run_read(request, calls.incidents(caller.topics, over, limit))
    seen = [IncidentInfo.of(row) for row in found if caller.may(Role.VIEWER, row.topic)]
    return ApiResponse({"incidents": seen})


@router.get("/alerts", response_model=AlertList, summary="List alerts")
async def list_alerts(
    request: Request,
    caller: Viewer,
    sink: Annotated[FleetName | None, Query(description="Only what this sink was told.")] = None,
    over: Annotated[bool, Query(description="Also what is over; it is kept for a week.")] = False,
    limit: Limit = 100,
) -> Response:
    """List what each sink was told about each group of alerts, the latest first; with `over` also what is over."""
    found = await run_read(request, find_incidents(sink, over=over, most=limit, topics=caller.limited_to))
    return ApiResponse({"alerts": list(map(AlertInfo.of, found))})


@router.post("/alerts/replay", response_model=AlertReplayResult, summary="Send alerts again")
async def replay_alerts(request: Request, caller: Operator, body: AlertReplay) -> Response:
    """Send alerts to sinks again that were delivered or abandoned. It needs the role for all topics."""
    check_permission(caller, Role.OPERATOR)
    replayed = await run_write(request, caller, calls.replay_alerts(body.sink, body.since, body.id))
    return ApiResponse({"replayed": replayed})


@router.get("/sinks", response_model=SinkList, summary="List sinks")
async def list_sinks(request: Request, caller: Viewer) -> Response:
    """List the sinks, and whether alerts reach them. It needs the role for all topics."""
    check_permission(caller, Role.VIEWER)
    found = await run_read(request, find_sinks())
    return ApiResponse({"sinks": list(map(SinkInfo.of, found))})


@router.delete("/sinks/{name}", response_model=Removal, summary="Delete a sink", responses=responses(404))
async def delete_sink(request: Request, caller: Operator, name: FleetName) -> Response:
    """Delete a sink that no configuration names any more. It needs the role for all topics."""
    check_permission(caller, Role.OPERATOR)
    if not await run_write(request, caller, calls.delete_sink(name)):
        raise Problem(404, f"there is no sink {name}", "not_found")
    return ApiResponse({"removed": name})


@router.get("/silences", response_model=SilenceList, summary="List silences")
async def list_silences(request: Request, caller: Viewer) -> Response:
    """List the silences that have not ended."""
    async with reading(request) as conn:
        return ApiResponse({"silences": list(map(SilenceInfo.of, await read_silences(conn, caller)))})


@router.post("/silences", status_code=201, response_model=SilenceInfo, summary="Add a silence")
async def add_silence(request: Request, caller: Operator, body: NewSilence) -> Response:
    """Send no alerts that match, until the silence ends. Those that are not over then are sent then.

    Without a topic, or with a pattern, it needs the role for all topics.
    """
    check_silenced(caller, Role.OPERATOR, body.topic)
    call = calls.silence(body.kind, body.topic, body.error_fingerprint, body.ends_in, body.until, body.reason)
    async with writing(request, caller) as conn:
        added = await run_async(conn, find_silence(await run_async(conn, call)))
    return ApiResponse(SilenceInfo.of(added), 201)


@router.delete("/silences/{silence_id}", response_model=SilenceEnd, summary="End a silence", responses=responses(404))
async def remove_silence(request: Request, caller: Operator, silence_id: SilenceId) -> Response:
    """End a silence early. Its alerts are sent again."""
    return ApiResponse({"ended": await end_silence(request, caller, silence_id)})
