"""Dead messages: list, group, redrive, requeue."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field, model_validator
from starlette.responses import Response

from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import Connection
from pgrouse.web.problem import Problem
from pgrouse.web.security import check_permission
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.caller import Operator, Viewer
from pgrouse.web.v1.model import (
    ERROR_RESPONSES,
    MAX_ITEMS,
    Cursor,
    Id,
    Limit,
    RequestModel,
    ResponseModel,
    Text,
    Timestamp,
    Topic,
    Wait,
    example,
)
from pgrouse.web.v1.response import ApiResponse
from pgrouse.web.v1.route import StrictRoute

router = APIRouter(prefix="/v1/dead", tags=["dead"], responses=ERROR_RESPONSES, route_class=StrictRoute)

Result = Annotated[str, Field(pattern="^(rejected|failed|lock_expired|expired)$")]
Fingerprint = Annotated[str, Field(max_length=100, pattern="^[0-9a-f]+$")]


class DeadMessage(ResponseModel):
    """A dead message."""

    id: int
    topic: str
    result: str
    error: str | None
    error_fingerprint: str | None
    archived_at: str


class DeadMessagePage(ResponseModel):
    """A page of dead messages, oldest first."""

    messages: list[DeadMessage]
    next: str | None


class DeadMessageGroup(ResponseModel):
    """Dead messages with the same topic, result and error fingerprint."""

    topic: str
    result: str
    error_fingerprint: str | None
    count: int
    redriven: int
    first_seen: str
    last_seen: str
    sample_id: int
    sample_error: str | None
    trend: list[int]
    """How many died in each of 24 equal parts of the period, oldest first."""
    at_least: bool


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


class RedriveRequest(RequestModel):
    """Which dead messages to redrive, by `ids` or by `filter`, and how."""

    model_config = example(filter={"topic": "orders.created", "result": "failed"}, rate=10, dry_run=True)

    ids: list[Id] | None = Field(default=None, min_length=1, max_length=MAX_ITEMS)
    filter: DeadMessageFilter | None = None
    rate: float | None = Field(default=None, gt=0, le=1_000_000, allow_inf_nan=False)
    """How many messages become available per second; all at once unless given."""
    delay: Wait | None = None
    """How long until the first message becomes available."""
    force: bool = False
    """Also redrive messages that have reached `max_redrives`."""
    dry_run: bool = False
    """Report the outcome for each message without changing anything."""

    @model_validator(mode="after")
    def _says_which(self) -> RedriveRequest:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or filter")
        return self


class RedriveOutcome(ResponseModel):
    """The outcome for one dead message."""

    archived_id: int
    message_id: int | None
    outcome: str
    """redriven, keyless (redriven without its key), superseded, redriven_before, too_often, too_large, or not_dead."""


class RedriveResult(ResponseModel):
    """The outcome for each dead message."""

    dry_run: bool
    results: list[RedriveOutcome]


# Topic by topic, each up to the size of the page. Topics that the caller may not see are not read.
TOPICS = """
    SELECT t.topic FROM messages.dead_topics() AS t (topic)
    WHERE %(topic)s::text IS NULL AND (%(like)s::text[] IS NULL OR t.topic LIKE ANY (%(like)s))
    UNION ALL SELECT %(topic)s WHERE %(topic)s::text IS NOT NULL"""
FIND = f"""
    SELECT f.* FROM ({TOPICS}) AS t
    CROSS JOIN LATERAL messages.find_dead(
      p_topic => t.topic, p_result => %(result)s, p_fingerprint => %(fingerprint)s, p_since => %(since)s, p_until => %(until)s,
      p_error => %(error)s, p_limit => %(limit)s, p_after => %(after)s, p_redriven => %(redriven)s) AS f
    ORDER BY f.archived_at, f.id LIMIT %(limit)s"""  # noqa: S608 - constants only
LIST = f"""
    SELECT f.*, a.error FROM ({FIND}) AS f
    JOIN messages.message_archive AS a ON a.id = f.id AND a.archived_at = f.archived_at
    ORDER BY f.archived_at, f.id"""  # noqa: S608


def _values(caller: Caller, **filters: Any) -> dict[str, Any]:
    if filters.get("topic") is not None:
        check_permission(caller, Role.VIEWER, filters["topic"])
    return {"after": None, "redriven": False, "like": None if caller.sees_all else caller.like, **filters}


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
    cursor_: Annotated[Cursor | None, Query(alias="cursor")] = None,
    limit: Limit = 50,
) -> Response:
    """List dead messages, oldest first; with `redriven` also those that were redriven since."""
    filters = {"topic": topic, "result": result, "fingerprint": fingerprint, "error": error}
    times: dict[str, datetime | None] = {"since": since, "until": until}
    after = cursor.decode_id("dead", cursor_)
    values = _values(caller, **filters, **times, redriven=redriven, limit=limit, after=after)
    async with request.app.state.db.read() as conn:
        rows = await (await conn.execute(LIST.encode(), values)).fetchall()
    is_full = len(rows) == limit
    return ApiResponse({"messages": rows, "next": cursor.encode("dead", rows[-1]["id"]) if is_full else None})


@router.get("/groups", response_model=DeadMessageGroups, summary="Group dead messages")
async def group_dead_messages(
    request: Request,
    caller: Viewer,
    topic: Topic | None = None,
    result: Result | None = None,
    since: Annotated[Wait, Query(description="How far to look back.")] = timedelta(days=7),
) -> Response:
    """Group the dead messages of a period by topic, result and error fingerprint."""
    if topic is not None:
        check_permission(caller, Role.VIEWER, topic)
    query = b"SELECT g.* FROM messages.dead_groups(p_since => %s, p_topic => %s, p_result => %s) AS g"
    async with request.app.state.db.read() as conn:
        rows = await (await conn.execute(query, [since, topic, result])).fetchall()
    return ApiResponse({"groups": [row for row in rows if caller.sees(row["topic"])]})


OWN_DEAD = b"SELECT DISTINCT a.id FROM messages.message_archive AS a WHERE a.id = ANY (%s::bigint[]) AND a.topic LIKE ANY (%s::text[])"


@router.post("/redrive", response_model=RedriveResult, summary="Redrive dead messages")
async def redrive_dead_messages(request: Request, caller: Operator, body: RedriveRequest) -> Response:
    """Publish dead messages again as new messages, at once or at a rate. The request is safe to repeat: no message is redriven twice."""
    async with request.app.state.db.write(caller) as conn:
        ids = await _selected_ids(conn, caller, body)
        query = b"SELECT r.* FROM messages.redrive(%s::bigint[], %s, coalesce(%s, interval '0'), %s) AS r"
        rows = await (await conn.execute(query, [ids, body.rate, body.delay, body.force])).fetchall() if ids else []
        if body.dry_run:
            await conn.execute(b"ROLLBACK")
    if body.dry_run:
        rows = [row | {"message_id": None} if row["outcome"] in REDRIVEN_OUTCOMES else row for row in rows]
    rows += [
        {"archived_id": each, "message_id": None, "outcome": "not_dead"}
        for each in sorted(set(body.ids or []) - {row["archived_id"] for row in rows})
    ]
    return ApiResponse({"dry_run": body.dry_run, "results": rows})


class RequeueRequest(RequestModel):
    """Which copies in dead letter topics (`….dlq`) to requeue, and how."""

    model_config = example(ids=[7, 8], rate=10)

    ids: list[Id] = Field(min_length=1, max_length=MAX_ITEMS)
    rate: float | None = Field(default=None, gt=0, le=1_000_000, allow_inf_nan=False)
    """How many messages become available per second; all at once unless given."""
    delay: Wait | None = None
    """How long until the first message becomes available."""
    force: bool = False
    """Also redrive messages that have reached `max_redrives`."""


class RequeueOutcome(ResponseModel):
    """The outcome for one copy."""

    copy_id: int
    archived_id: int | None
    message_id: int | None
    outcome: str
    """As for a redrive; not_waiting: it is not a waiting copy."""


class RequeueResult(ResponseModel):
    """The outcome for each copy."""

    results: list[RequeueOutcome]


OWN_COPIES = b"""
    SELECT m.id FROM messages.message AS m
    WHERE m.id = ANY (%(ids)s::bigint[]) AND m.topic LIKE ANY (%(like)s::text[])
      AND coalesce(m.original_topic, m.topic) LIKE ANY (%(like)s::text[])"""


@router.post("/requeue", response_model=RequeueResult, summary="Requeue dead letters")
async def requeue_dead_letters(request: Request, caller: Operator, body: RequeueRequest) -> Response:
    """Move copies that wait in a dead letter topic (`….dlq`) back to their original topic. The request is safe to repeat: no copy is requeued twice."""
    async with request.app.state.db.write(caller) as conn:
        ids = body.ids
        if not caller.sees_all:
            own = await conn.execute(OWN_COPIES, {"ids": ids, "like": caller.like})
            ids = [row["id"] for row in await own.fetchall()]
        query = b"SELECT r.* FROM messages.requeue_dead_letters(%s::bigint[], %s, coalesce(%s, interval '0'), %s) AS r"
        rows = await (await conn.execute(query, [ids, body.rate, body.delay, body.force])).fetchall()
    rows += [
        {"copy_id": each, "archived_id": None, "message_id": None, "outcome": "not_waiting"}
        for each in sorted(set(body.ids) - {row["copy_id"] for row in rows})
    ]
    return ApiResponse({"results": rows})


REDRIVEN_OUTCOMES = ("redriven", "keyless")


async def _selected_ids(conn: Connection, caller: Caller, body: RedriveRequest) -> list[int]:
    if body.filter is not None:
        values = _values(caller, **body.filter.model_dump())
        return [row["id"] for row in await (await conn.execute(FIND.encode(), values)).fetchall()]
    if body.ids is None:
        raise Problem(422, "give either ids or filter", "invalid_request")
    if caller.sees_all:
        return body.ids
    return [row["id"] for row in await (await conn.execute(OWN_DEAD, [body.ids, caller.like])).fetchall()]
