"""Dead messages: list them, group them, put them back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field, model_validator
from starlette.responses import Response

from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import Connection
from pgrouse.web.security import allow
from pgrouse.web.problem import Problem
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.response import Answer
from pgrouse.web.v1.caller import Operator, Viewer
from pgrouse.web.v1.model import MOST, REFUSALS, Body, Cursor, Id, Limit, Moment, Shape, Text, Topic, Wait, example
from pgrouse.web.v1.route import Route

router = APIRouter(prefix="/v1/dead", tags=["dead"], responses=REFUSALS, route_class=Route)

Result = Annotated[str, Field(pattern="^(rejected|failed|lock_expired|expired)$")]
Fingerprint = Annotated[str, Field(max_length=100, pattern="^[0-9a-f]+$")]


class Dead(Shape):
    """A dead message."""

    id: int
    topic: str
    result: str
    error: str | None
    error_fingerprint: str | None
    archived_at: str


class Page(Shape):
    """A page of dead messages, the oldest first."""

    messages: list[Dead]
    next: str | None


class Group(Shape):
    """Dead messages that have topic, result and fingerprint in common."""

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
    """How many died in each of 24 equal parts of the time, the oldest first."""
    at_least: bool


class Groups(Shape):
    """The groups of a time."""

    groups: list[Group]


class Filter(Body):
    """Which dead messages: those that fit all that is given, the oldest first."""

    topic: Topic | None = None
    result: Result | None = None
    fingerprint: Fingerprint | None = None
    error: Text | None = None
    """A text that the error has, whatever its case."""
    since: Moment | None = None
    until: Moment | None = None
    limit: int = Field(default=MOST, ge=1, le=10_000)


class Redrive(Body):
    """Which dead messages to put back, by `ids` or by `filter`, and how."""

    model_config = example(filter={"topic": "orders.created", "result": "failed"}, rate=10, dry_run=True)

    ids: list[Id] | None = Field(default=None, min_length=1, max_length=MOST)
    filter: Filter | None = None
    rate: float | None = Field(default=None, gt=0, le=1_000_000, allow_inf_nan=False)
    """So many a second become available; all at once unless given."""
    delay: Wait | None = None
    """How long from now the first one does."""
    force: bool = False
    """Also those that were put back as often as `max_redrives` allows."""
    dry_run: bool = False
    """Say what would become of each, and change nothing."""

    @model_validator(mode="after")
    def _says_which(self) -> Redrive:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or filter")
        return self


class Redriven(Shape):
    """What became of one."""

    archived_id: int
    message_id: int | None
    outcome: str
    """redriven, keyless, superseded, redriven_before, too_often, too_large, not_dead."""


class RedrivenMany(Shape):
    """What became of each."""

    dry_run: bool
    results: list[Redriven]


# Topic by topic, each no further than the page goes; what is closed to the caller is not looked at.
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
        allow(caller, Role.VIEWER, filters["topic"])
    return {"after": None, "redriven": False, "like": None if caller.sees_all else caller.like, **filters}


@router.get("", response_model=Page, summary="List dead messages")
async def list_dead(
    request: Request,
    caller: Viewer,
    topic: Topic | None = None,
    result: Result | None = None,
    fingerprint: Fingerprint | None = None,
    error: Text | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    redriven: bool = False,
    cursor_: Annotated[Cursor | None, Query(alias="cursor")] = None,
    limit: Limit = 50,
) -> Response:
    """List dead messages, the oldest first; with `redriven` those too that were put back since."""
    filters = {"topic": topic, "result": result, "fingerprint": fingerprint, "error": error}
    times: dict[str, datetime | None] = {"since": since, "until": until}
    after = cursor.read_id("dead", cursor_)
    values = _values(caller, **filters, **times, redriven=redriven, limit=limit, after=after)
    async with request.app.state.db.read() as conn:
        rows = await (await conn.execute(LIST.encode(), values)).fetchall()
    is_full = len(rows) == limit
    return Answer({"messages": rows, "next": cursor.write("dead", rows[-1]["id"]) if is_full else None})


@router.get("/groups", response_model=Groups, summary="Group dead messages")
async def group(
    request: Request,
    caller: Viewer,
    topic: Topic | None = None,
    result: Result | None = None,
    since: Annotated[Wait, Query(description="How far back to look.")] = timedelta(days=7),
) -> Response:
    """Group the dead messages of a time by topic, result and fingerprint of their error."""
    if topic is not None:
        allow(caller, Role.VIEWER, topic)
    query = b"SELECT g.* FROM messages.dead_groups(p_since => %s, p_topic => %s, p_result => %s) AS g"
    async with request.app.state.db.read() as conn:
        rows = await (await conn.execute(query, [since, topic, result])).fetchall()
    return Answer({"groups": [row for row in rows if caller.sees(row["topic"])]})


OWN_DEAD = b"SELECT DISTINCT a.id FROM messages.message_archive AS a WHERE a.id = ANY (%s::bigint[]) AND a.topic LIKE ANY (%s::text[])"


@router.post("/redrive", response_model=RedrivenMany, summary="Put dead messages back")
async def redrive(request: Request, caller: Operator, body: Redrive) -> Response:
    """Put dead messages back, each as a new message; at once, or so many a second. Sent again, nothing is put back twice."""
    async with request.app.state.db.write(caller) as conn:
        ids = await _chosen(conn, caller, body)
        query = b"SELECT r.* FROM messages.redrive(%s::bigint[], %s, coalesce(%s, interval '0'), %s) AS r"
        rows = await (await conn.execute(query, [ids, body.rate, body.delay, body.force])).fetchall() if ids else []
        if body.dry_run:
            await conn.execute(b"ROLLBACK")
    if body.dry_run:
        rows = [row | {"message_id": None} if row["outcome"] in NEW else row for row in rows]
    rows += [
        {"archived_id": each, "message_id": None, "outcome": "not_dead"}
        for each in sorted(set(body.ids or []) - {row["archived_id"] for row in rows})
    ]
    return Answer({"dry_run": body.dry_run, "results": rows})


class Requeue(Body):
    """Which copies in topics that end with `.dlq` to put back, and how."""

    model_config = example(ids=[7, 8], rate=10)

    ids: list[Id] = Field(min_length=1, max_length=MOST)
    rate: float | None = Field(default=None, gt=0, le=1_000_000, allow_inf_nan=False)
    """So many a second become available; all at once unless given."""
    delay: Wait | None = None
    """How long from now the first one does."""
    force: bool = False
    """Also those that were put back as often as `max_redrives` allows."""


class Requeued(Shape):
    """What became of one copy."""

    copy_id: int
    archived_id: int | None
    message_id: int | None
    outcome: str
    """As of a redrive; not_waiting: it is no copy that waits."""


class RequeuedMany(Shape):
    """What became of each."""

    results: list[Requeued]


OWN_COPIES = b"""
    SELECT m.id FROM messages.message AS m
    WHERE m.id = ANY (%(ids)s::bigint[]) AND m.topic LIKE ANY (%(like)s::text[])
      AND coalesce(m.original_topic, m.topic) LIKE ANY (%(like)s::text[])"""


@router.post("/requeue", response_model=RequeuedMany, summary="Put copies of dead letters back")
async def requeue(request: Request, caller: Operator, body: Requeue) -> Response:
    """Move copies that wait in a topic `….dlq` back to the topic where they died. Sent again, nothing is put back twice."""
    async with request.app.state.db.write(caller) as conn:
        ids = body.ids
        if not caller.sees_all:
            own = await conn.execute(OWN_COPIES, {"ids": ids, "like": caller.like})
            ids = [row["id"] for row in await own.fetchall()]
        query = b"SELECT r.* FROM messages.requeue(%s::bigint[], %s, coalesce(%s, interval '0'), %s) AS r"
        rows = await (await conn.execute(query, [ids, body.rate, body.delay, body.force])).fetchall()
    rows += [
        {"copy_id": each, "archived_id": None, "message_id": None, "outcome": "not_waiting"}
        for each in sorted(set(body.ids) - {row["copy_id"] for row in rows})
    ]
    return Answer({"results": rows})


NEW = ("redriven", "keyless")


async def _chosen(conn: Connection, caller: Caller, body: Redrive) -> list[int]:
    if body.filter is not None:
        values = _values(caller, **body.filter.model_dump())
        return [row["id"] for row in await (await conn.execute(FIND.encode(), values)).fetchall()]
    if body.ids is None:
        raise Problem(422, "give either ids or filter", "invalid_request")
    if caller.sees_all:
        return body.ids
    return [row["id"] for row in await (await conn.execute(OWN_DEAD, [body.ids, caller.like])).fetchall()]
