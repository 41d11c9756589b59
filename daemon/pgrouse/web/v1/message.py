"""Single messages: find, show, explain, cancel, skip, retry now, edit."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from psycopg.types.json import Jsonb
from pydantic import Field, model_validator
from starlette.responses import Response

from pgrouse.client import message_query as message_row
from pgrouse.crypto import envelope
from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import Connection, Row
from pgrouse.web.security import allow
from pgrouse.web.problem import Problem
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.response import Answer, encrypted, with_raw
from pgrouse.web.v1.caller import Operator, Viewer
from pgrouse.web.v1.model import (
    MOST,
    REFUSALS,
    Body,
    Cursor,
    Encrypted,
    Id,
    Json,
    JsonObject,
    Label,
    Limit,
    Moment,
    PathId,
    Shape,
    Text,
    Topic,
    example,
)
from pgrouse.web.v1.route import Route

router = APIRouter(prefix="/v1", tags=["messages"], responses=REFUSALS, route_class=Route)

STATES = ("ready", "delayed", "retrying", "running")
RESULTS = ("success", "rejected", "failed", "lock_expired", "expired", "cancelled")
State = Annotated[str, Field(pattern=f"^({'|'.join((*STATES, *RESULTS))})$")]


class Found(Shape):
    """A message of a list."""

    id: int
    topic: str
    channel: str | None
    key: str | None
    priority: int
    state: str
    """ready, delayed, retrying, running, or its result."""
    attempts: int
    created_at: str
    available_at: str
    worker: str | None


class Page(Shape):
    """A page of messages. Where no index serves the filters it may be short, or empty, while `next` has more."""

    messages: list[Found]
    next: str | None


class Shown(Shape):
    """All that is known of a message."""

    id: int
    topic: str
    state: str
    payload: Any
    body: str | None
    encrypted: Encrypted | None
    """Instead of payload and body, which this server cannot read: by which key, and how many bytes."""
    headers: dict[str, Any] | None
    history: list[dict[str, Any]] | None


class Reason(Shape):
    """Why it is not running, or how it ended."""

    code: str
    reason: str
    detail: Any


class Explained(Shape):
    """The reasons, the most decisive first."""

    reasons: list[Reason]


class Ids(Body):
    """Messages to act on."""

    model_config = example(ids=[7, 8], reason="sent twice")

    ids: list[Id] = Field(min_length=1, max_length=MOST)
    reason: Text | None = None
    """Is kept as the message's error."""


class IdsOnly(Body):
    """Messages to act on."""

    ids: list[Id] = Field(min_length=1, max_length=MOST)


class Acted(Shape):
    """What was done."""

    done: list[int]
    left: list[int]
    """What was left alone: it has ended, runs, or never was."""


class Edit(Body):
    """What a message that waits shall have instead."""

    model_config = example(payload={"id": 7, "total": 8.5})

    payload: Json = None
    headers: JsonObject | None = None
    seen: str | None = Field(default=None, pattern=r"^[0-9a-f]{32}$")
    """The MD5 of the payload's text, as it was shown to whoever edits it: one that is another by now is left alone."""

    @model_validator(mode="after")
    def _says_something(self) -> Edit:
        if not {"payload", "headers"} & self.model_fields_set:
            raise ValueError("nothing to change: give payload or headers")
        return self


FIND = b"""
    SELECT f.* FROM messages.find_messages(
      p_topic => %(topic)s, p_states => %(states)s, p_channel => %(channel)s, p_key => %(key)s, p_error => %(error)s,
      p_fingerprint => %(fingerprint)s, p_path => %(path)s, p_value => %(value)s, p_since => %(since)s, p_until => %(until)s,
      p_topics => %(topics)s, p_limit => %(limit)s, p_after => %(after)s) AS f"""


@router.get("/messages", response_model=Page, summary="Find messages")
async def find(
    request: Request,
    caller: Viewer,
    topic: Topic | None = None,
    state: Annotated[list[State] | None, Query(max_length=10)] = None,
    channel: Label | None = None,
    key: Label | None = None,
    error: Annotated[Text | None, Query(description="A text that the error has, whatever its case.")] = None,
    fingerprint: Annotated[str | None, Query(max_length=100, pattern="^[0-9a-f]*$")] = None,
    path: Annotated[Text | None, Query(max_length=500, description="A jsonpath that the payload matches.")] = None,
    since: Moment | None = None,
    until: Moment | None = None,
    cursor_: Annotated[Cursor | None, Query(alias="cursor")] = None,
    limit: Limit = 50,
) -> Response:
    """Find messages by what they are: those that run, those that wait in the order of claims, then those that ended, the latest first."""
    if topic is not None:
        allow(caller, Role.VIEWER, topic)
    after = cursor.read("messages", cursor_)
    values = {
        "topic": topic,
        "states": state,
        "channel": channel,
        "key": key,
        "error": error,
        "fingerprint": fingerprint,
        "path": path,
        "value": None,
        "since": since,
        "until": until,
        "limit": limit,
        "topics": None if caller.sees_all else caller.like,
        "after": None if after is None else Jsonb(after),
    }
    async with request.app.state.db.read() as conn:
        rows = await (await conn.execute(FIND, values)).fetchall()
    place = next((row["place"] for row in rows if row["id"] is None), None)
    found = [{name: row[name] for name in LISTED} for row in rows if row["id"] is not None]
    return Answer({"messages": found, "next": cursor.write("messages", place)})


LISTED = (
    *("id", "topic", "channel", "key", "priority", "state", "attempts", "redrives", "created_at", "available_at"),
    *("worker", "locked_at", "lock_expires_at", "archived_at"),
)


@router.get("/messages/{message_id}", response_model=Shown, summary="Show a message")
async def show(request: Request, caller: Viewer, message_id: PathId) -> Response:
    """Return all that is known of a message, live or archived."""
    async with request.app.state.db.read() as conn:
        row = await _seen(conn, caller, message_id)
    return Answer(_shown(row))


def _shown(row: Row) -> dict[str, Any]:
    """Return a message as it is answered: of what is encrypted, by which key, and how much it is."""
    shown = with_raw(row, *message_row.JSON_COLUMNS) | {"encrypted": encrypted(row["body"])}
    if shown["encrypted"]:
        shown["body"] = None
    for name in ("state_kept", "output"):
        if (said := envelope.shown_json(row[name])) is not None:
            shown[name] = said
    return shown


async def _seen(conn: Connection, caller: Caller, message_id: int) -> Row:
    """Return a message that the caller may see.

    Raises:
        Problem: 404, also for one of a topic that is closed to him.
    """
    query = message_row.query(contents=True).encode()
    row = await (await conn.execute(query, {"id": message_id})).fetchone()
    if row is None or not caller.sees(row["topic"]):
        raise no_message(message_id)
    return row


def no_message(message_id: int) -> Problem:
    """Return the problem of a message that there is not."""
    return Problem(404, f"there is no message {message_id}, or no more", "not_found", id=message_id)


@router.get("/messages/{message_id}/explain", response_model=Explained, summary="Explain a message")
async def explain(request: Request, caller: Viewer, message_id: PathId) -> Response:
    """Say why a message is not running, or how it ended."""
    async with request.app.state.db.read() as conn:
        await _seen(conn, caller, message_id)
        query = b"SELECT code, reason, detail::text FROM messages.explain(%s)"
        rows = await (await conn.execute(query, [message_id])).fetchall()
    return Answer({"reasons": [with_raw(row, "detail") for row in rows]})


@router.post("/messages/cancel", response_model=Acted, summary="Cancel messages")
async def cancel(request: Request, caller: Operator, body: Ids) -> Response:
    """End messages, whether they wait or run; they are archived as cancelled."""
    return await _act(request, caller, b"SELECT messages.cancel(%s::bigint[], %s)", body.ids, body.reason)


@router.post("/messages/delete", response_model=Acted, summary="Delete messages")
async def delete(request: Request, caller: Operator, body: IdsOnly) -> Response:
    """Delete messages that wait, without a trace; what runs is left alone. To keep a trace, cancel them."""
    return await _act(request, caller, b"SELECT messages.delete(%s::bigint[])", body.ids)


@router.post("/messages/skip", response_model=Acted, summary="Skip messages")
async def skip(request: Request, caller: Operator, body: Ids) -> Response:
    """Take messages that wait out of the way of those behind them in an ordered channel; they are archived as failed."""
    return await _act(request, caller, b"SELECT messages.skip(%s::bigint[], %s)", body.ids, body.reason)


@router.post("/messages/retry", response_model=Acted, summary="Retry messages now")
async def retry_now(request: Request, caller: Operator, body: IdsOnly) -> Response:
    """Let messages that wait for a time be tried at once."""
    return await _act(request, caller, b"SELECT messages.retry_now(%s::bigint[])", body.ids)


async def _act(request: Request, caller: Caller, call: bytes, ids: list[int], *more: Any) -> Response:
    async with request.app.state.db.write(caller) as conn:
        mine = await _own(conn, caller, ids)
        row = await (await conn.execute(call, [mine, *more])).fetchone() if mine else None
    done = sorted(next(iter(row.values()))) if row else []
    return Answer({"done": done, "left": sorted(set(ids) - set(done))})


async def _own(conn: Connection, caller: Caller, ids: list[int]) -> list[int]:
    """Return the live messages of these whose topics the caller may act on."""
    if caller.sees_all:
        return ids
    query = b"SELECT m.id FROM messages.message AS m WHERE m.id = ANY (%s::bigint[]) AND m.topic LIKE ANY (%s::text[])"
    return [row["id"] for row in await (await conn.execute(query, [ids, caller.like])).fetchall()]


# What edit says, as a problem: status and detail.
NOT_EDITED = {
    "changed": "it is not what you have seen any more: look again",
    "running": "it runs: its handler has the old one",
    "ended": "it has ended",
}


@router.patch("/messages/{message_id}", response_model=Shown, summary="Edit a message")
async def edit(request: Request, caller: Operator, message_id: PathId, body: Edit) -> Response:
    """Give a message that waits another payload or other headers. 409 `running`, `ended` or `changed`: nothing was changed."""
    payload = body.payload.text if "payload" in body.model_fields_set else None
    headers = None if body.headers is None else body.headers.text
    async with request.app.state.db.write(caller) as conn:
        await _seen(conn, caller, message_id)
        call = b"SELECT messages.edit(%s, %s::jsonb, %s::jsonb, %s) AS what"
        done = await (await conn.execute(call, [message_id, payload, headers, body.seen])).fetchone()
        what = done["what"] if done else "ended"
        if what in NOT_EDITED:
            raise Problem(409, f"message {message_id}: {NOT_EDITED[what]}", what, id=message_id)
        row = await _seen(conn, caller, message_id)
    return Answer(_shown(row))
