"""Dead messages: list, group, redrive, requeue."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls import dead as calls
from pgrouse.client.message_state import DEAD
from pgrouse.client.queries.dead import dead_details, origins_of
from pgrouse.client.redrive import MAX_RATE, MIN_RATE, REDRIVEN_OUTCOMES
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, read_rows, reading, run_read, writing
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.http.problem import Problem
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.messages.message import own_messages
from pgrouse.web.v1.model import (
    MAX_ITEMS,
    CursorQuery,
    Id,
    Limit,
    RequestModel,
    ResponseModel,
    Rule,
    RuledModel,
    Text,
    Timestamp,
    Topic,
    Wait,
    exactly_one,
    example,
    members_of,
)
from pgrouse.web.v1.response import ApiResponse
from pgrouse.web.v1.route import StrictRoute

router = APIRouter(prefix="/v1/dead", tags=["dead"], route_class=StrictRoute)

Result = Annotated[str, Field(pattern=f"^({'|'.join(DEAD)})$")]
Fingerprint = Annotated[str, Field(max_length=100, pattern="^[0-9a-f]+$")]


@members_of(calls.FoundDeadMessage)
class ListedDeadMessage(ResponseModel):
    """A dead message."""

    model_config = example(error="ValueError: bad price", error_fingerprint="8c1f0b6a2d9e4f75")

    error: str | None
    """The error of the last attempt."""


class DeadMessagePage(ResponseModel):
    """A page of dead messages, oldest first."""

    messages: list[ListedDeadMessage]
    next: str | None


@members_of(calls.DeadGroup)
class DeadMessageGroup(ResponseModel):
    """Dead messages with the same topic, result and error fingerprint."""

    model_config = example(
        error_fingerprint="8c1f0b6a2d9e4f75",
        count=12,
        first_seen="2027-01-31T07:40:00+00:00",
        sample_error="ValueError: bad price",
        trend=[*[0] * 23, 12],
    )


class DeadMessageGroups(ResponseModel):
    """The groups of a period."""

    groups: list[DeadMessageGroup]


class DeadMessageFilter(RequestModel):
    """Which dead messages: those that match all given filters, oldest first."""

    topic: Topic | None = None
    result: Result | None = None
    fingerprint: Fingerprint | None = None
    error: Text | None = None
    """Text that the error contains, ignoring case."""
    since: Timestamp | None = None
    until: Timestamp | None = None
    limit: int = Field(default=MAX_ITEMS, ge=1, le=10_000)


class RedriveSettings(RequestModel):
    """How to redrive."""

    rate: float | None = Field(default=None, ge=MIN_RATE, le=MAX_RATE)
    """How many messages become available per second; all at once unless given."""
    delay: Wait | None = None
    """How long until the first message becomes available."""
    force: bool = False
    """Also redrive messages that have reached `max_redrives`."""


class RedriveRequest(RedriveSettings, RuledModel):
    """Which dead messages to redrive, by `ids` or by `filter`, and how."""

    model_config = example(filter={"topic": "orders.created", "result": "failed"}, rate=10, dry_run=True)
    rules: ClassVar[tuple[Rule, ...]] = (exactly_one("ids", "filter"),)

    ids: list[Id] | None = Field(default=None, min_length=1, max_length=MAX_ITEMS)
    filter: DeadMessageFilter | None = None
    dry_run: bool = False
    """Report the outcome for each message without changing anything."""


@members_of(calls.Redriven)
class RedriveOutcome(ResponseModel):
    """The outcome for one dead message."""

    model_config = example(message_id=31, outcome="redriven")


class RedriveResult(ResponseModel):
    """The outcome for each dead message."""

    dry_run: bool
    results: list[RedriveOutcome]


async def _find(
    conn: Connection, caller: Caller, topic: str | None, limit: int, **filters: Any
) -> list[calls.FoundDeadMessage]:
    """Find dead messages of a topic or of all that the caller may see, the oldest first. Other topics are not read."""
    if topic is not None:
        check_permission(caller, Role.VIEWER, topic)
    if topic is not None or caller.sees_all:
        return await run_async(conn, calls.find_dead(topic, limit=limit, **filters))
    topics = [each for each in await run_async(conn, calls.dead_topics()) if caller.sees(each)]
    found = [await run_async(conn, calls.find_dead(each, limit=limit, **filters)) for each in topics]
    return sorted((each for some in found for each in some), key=lambda dead: (dead.archived_at, dead.id))[:limit]


@router.get("", response_model=DeadMessagePage, summary="List dead messages")
async def list_dead_messages(
    request: Request,
    caller: Viewer,
    topic: Topic | None = None,
    result: Result | None = None,
    fingerprint: Fingerprint | None = None,
    error: Text | None = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    redriven: bool = False,
    cursor_: CursorQuery = None,
    limit: Limit = 50,
) -> Response:
    """List dead messages, oldest first; with `redriven` also those that were redriven since."""
    filters: dict[str, Any] = {"result": result, "fingerprint": fingerprint, "error": error, "redriven": redriven}
    filters |= {"since": since, "until": until, "after": cursor.decode_id("dead", cursor_)}
    async with reading(request) as conn:
        found = await _find(conn, caller, topic, limit, **filters)
        details = await run_async(conn, dead_details([(each.id, each.archived_at) for each in found]))
    errors = {each.id: each.error for each in details}
    rows = [ListedDeadMessage.of(each, error=errors[each.id]) for each in found if each.id in errors]
    return ApiResponse({"messages": rows, "next": cursor.encode_end("dead", [each.id for each in found], limit)})


LOOK_BACK = timedelta(days=7)


@router.get("/groups", response_model=DeadMessageGroups, summary="Group dead messages")
async def group_dead_messages(
    request: Request,
    caller: Viewer,
    topic: Topic | None = None,
    result: Result | None = None,
    since: Annotated[Wait | None, Query(description="How far to look back; 7 days unless given.")] = None,
) -> Response:
    """Group the dead messages of a period by topic, result and error fingerprint."""
    if topic is not None:
        check_permission(caller, Role.VIEWER, topic)
    found = await run_read(request, calls.dead_groups(since or LOOK_BACK, topic, result))
    return ApiResponse({"groups": [DeadMessageGroup.of(each) for each in found if caller.sees(each.topic)]})


@router.post("/redrive", response_model=RedriveResult, summary="Redrive dead messages")
async def redrive_dead_messages(request: Request, caller: Operator, body: RedriveRequest) -> Response:
    """Publish dead messages again as new messages, at once or at a rate.

    The request is safe to repeat: no message is redriven twice.

    A `filter` redrives at most `limit` messages; to redrive exactly those that a dry run listed, send their `ids`.
    """
    async with writing(request, caller) as conn:
        ids = await _selected_ids(conn, caller, body)
        rows = await read_rows(conn, calls.redrive(ids, body.rate, body.delay, body.force)) if ids else []
        if body.dry_run:
            await conn.execute(b"ROLLBACK")
    if body.dry_run:
        rows = [row | {"message_id": None} if row["outcome"] in REDRIVEN_OUTCOMES else row for row in rows]
    rows += [
        {"archived_id": each, "message_id": None, "outcome": "not_dead"}
        for each in sorted(set(body.ids or []) - {row["archived_id"] for row in rows})
    ]
    return ApiResponse({"dry_run": body.dry_run, "results": rows})


class RequeueRequest(RedriveSettings):
    """Which copies in dead letter topics (`….dlq`) to requeue, and how."""

    model_config = example(rate=10)

    ids: list[Id] = Field(min_length=1, max_length=MAX_ITEMS)


@members_of(calls.Requeued)
class RequeueOutcome(ResponseModel):
    """The outcome for one copy."""

    model_config = example(archived_id=7, message_id=31, outcome="redriven")


class RequeueResult(ResponseModel):
    """The outcome for each copy."""

    results: list[RequeueOutcome]


@router.post("/requeue", response_model=RequeueResult, summary="Requeue dead letters")
async def requeue_dead_letters(request: Request, caller: Operator, body: RequeueRequest) -> Response:
    """Move copies that wait in a dead letter topic (`….dlq`) back to their original topic.

    The request is safe to repeat: no copy is requeued twice.
    """
    async with writing(request, caller) as conn:
        ids = body.ids
        if not caller.sees_all:
            origins = await run_async(conn, origins_of(ids))
            ids = [
                each.id for each in origins if all(map(caller.sees, (each.topic, each.original_topic or each.topic)))
            ]
        rows = await read_rows(conn, calls.requeue_dead_letters(ids, body.rate, body.delay, body.force))
    rows += [
        {"copy_id": each, "archived_id": None, "message_id": None, "outcome": "not_waiting"}
        for each in sorted(set(body.ids) - {row["copy_id"] for row in rows})
    ]
    return ApiResponse({"results": rows})


async def _selected_ids(conn: Connection, caller: Caller, body: RedriveRequest) -> list[int]:
    if body.filter is not None:
        return [each.id for each in await _find(conn, caller, **body.filter.model_dump())]
    if body.ids is None:
        raise Problem(422, "give either ids or filter", "invalid_request")
    return await own_messages(conn, caller, body.ids)
