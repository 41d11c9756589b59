"""Single messages: list, get, explain, cancel, skip, retry, unblock, edit, delete."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from pgrouse.client.call import Call, run_async
from pgrouse.client.calls import operate, workflow
from pgrouse.client.calls.monitoring.explain import Reason, explain
from pgrouse.client.calls.monitoring.search import FoundMessage, find_messages
from pgrouse.client.message_state import LIVE, RESULTS
from pgrouse.client.queries.message import JSON_COLUMNS, AttemptLog, MessageRecord, find_logs, read_message, topics_of
from pgrouse.crypto import envelope
from pgrouse.web.access import fan_out, redaction
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, Row, read_rows, reading, run_read, writing
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.http.problem import Problem
from pgrouse.web.search.search import header_filter
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.description.problem_responses import responses
from pgrouse.web.v1.model import (
    MAX_ID,
    MAX_ITEMS,
    Cursor,
    EncryptedContent,
    Id,
    Json,
    JsonObject,
    Label,
    Limit,
    PathId,
    RequestModel,
    ResponseModel,
    Rule,
    RuledModel,
    Text,
    Timestamp,
    Topic,
    example,
    given,
    members_of,
)
from pgrouse.web.v1.response import ApiResponse, encrypted, with_raw
from pgrouse.web.v1.route import StrictRoute

router = APIRouter(prefix="/v1", tags=["messages"], route_class=StrictRoute)

State = Annotated[str, Field(pattern=f"^({'|'.join((*LIVE, *RESULTS))})$")]


@members_of(FoundMessage, without=("error", "error_fingerprint", "preview"))
class MessageSummary(ResponseModel):
    """A message in a list."""

    model_config = example(key="order-7")


class MessagePage(ResponseModel):
    """A page of messages. If no index supports the filters, it may be short or even empty while `next` has more."""

    messages: list[MessageSummary]
    next: str | None


@members_of(MessageRecord)
class MessageDetail(ResponseModel):
    """Everything that is known about a message."""

    model_config = example(key="order-7", payload={"id": 7, "total": 9.5})

    encrypted: EncryptedContent | None
    """Replaces payload and body of an encrypted message: the name of its key, and its size."""
    headers: dict[str, Any] | str | None
    """A text says why they are not shown."""
    history: list[dict[str, Any]] | None
    """The attempts that ended before the last one."""


@members_of(Reason)
class ExplainReason(ResponseModel):
    """A reason why the message is not running, or how it ended."""

    model_config = example(detail={"paused_by": "anna"})


class MessageExplanation(ResponseModel):
    """The reasons, most important first."""

    reasons: list[ExplainReason]


@members_of(AttemptLog)
class AttemptLogLines(ResponseModel):
    """The log lines of an attempt."""

    model_config = example(lines="2026-11-30T18:13:50.123Z INFO shop.orders: charged order=7")


class MessageLogs(ResponseModel):
    """The log lines of a message."""

    logs: list[AttemptLogLines]
    """By attempt, the first attempt first."""


class MessageIdsWithReason(RequestModel):
    """Messages to act on, and why."""

    model_config = example(reason="sent twice")

    ids: list[Id] = Field(min_length=1, max_length=MAX_ITEMS)
    reason: Text | None = None
    """Stored as the error of the messages."""


class MessageIds(RequestModel):
    """Messages to act on."""

    ids: list[Id] = Field(min_length=1, max_length=MAX_ITEMS)


class ActionResult(ResponseModel):
    """Which messages were changed."""

    done: list[int]
    unchanged: list[int]
    """Messages that were not changed: they have ended, are running, or do not exist."""


def _changes_nothing(body: EditRequest) -> str | None:
    if "payload" in body.model_fields_set or body.headers is not None:
        return None
    return "nothing to change: give payload or headers"


class EditRequest(RuledModel):
    """The new payload or headers of a waiting message."""

    model_config = example(payload={"id": 7, "total": 8.5})
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule({"anyOf": [{"required": ["payload"]}, given("headers")]}, _changes_nothing),
    )

    payload: Json = None
    headers: JsonObject | None = None
    expected_md5: str | None = Field(default=None, pattern=r"^[0-9a-f]{32}$")
    """The MD5 of the payload's text that the editor has seen. If the payload has changed since, nothing is edited."""


class MessageFilters(BaseModel):
    """The filters of a list, as the address has them."""

    topic: Topic | None = None
    state: list[State] | None = Field(None, max_length=10)
    channel: Label | None = None
    key: Label | None = None
    error: Text | None = Field(None, description="Text that the error contains, ignoring case.")
    fingerprint: str | None = Field(None, max_length=100, pattern="^[0-9a-f]*$")
    path: Text | None = Field(None, max_length=500, description="A jsonpath that the payload must match.")
    worker: Label | None = Field(None, description="The worker that runs the message, or ended it.")
    header: Text | None = Field(None, max_length=500, description="A header with its value, like `tenant = acme`.")
    attempts: int | None = Field(None, ge=0, lt=2**31, description="At least this many attempts.")
    batch: int | None = Field(None, ge=1, le=MAX_ID, description="The id of the batch that it counts in.")
    since: Timestamp | None = None
    until: Timestamp | None = None
    cursor: Cursor | None = None
    limit: Limit = 50


@router.get("/messages", response_model=MessagePage, summary="Find messages")
async def list_messages(request: Request, caller: Viewer, filters: Annotated[MessageFilters, Query()]) -> Response:
    """List messages by filters.

    Running messages come first, then waiting ones in the order of claims, then ended ones, latest first.
    """
    if filters.topic is not None:
        check_permission(caller, Role.VIEWER, filters.topic)
    redaction.check_content_filters(caller, filters.path, filters.header)
    after = cursor.decode("messages", filters.cursor)
    call = find_messages(
        **filters.model_dump(exclude={"state", "header", "batch", "cursor"}),
        batch_id=filters.batch,
        states=filters.state,
        headers=header_filter(filters.header or ""),
        topics=caller.limited_to,
        after=None if after is None else json.dumps(after),
    )
    page = await run_read(request, call)
    place = None if page.place is None else json.loads(page.place)
    return ApiResponse(
        {"messages": list(map(MessageSummary.of, page.messages)), "next": cursor.encode("messages", place)}
    )


@router.get("/messages/{message_id}", response_model=MessageDetail, summary="Show a message", responses=responses(404))
async def get_message(request: Request, caller: Viewer, message_id: PathId) -> Response:
    """Return everything that is known about a message, live or archived."""
    async with reading(request) as conn:
        row = await _read_visible(conn, caller, message_id)
    return ApiResponse(_detail(row))


def _detail(row: Row) -> dict[str, Any]:
    """Return the response for a message. Encrypted contents are replaced by their key and size."""
    shown = with_raw(row, *JSON_COLUMNS) | {"encrypted": encrypted(row["body"])}
    del shown["is_redacted"]
    if shown["encrypted"]:
        shown["body"] = None
    for name in ("state_kept", "output"):
        if (said := envelope.describe_json(row[name])) is not None:
            shown[name] = said
    return shown


async def _read_visible(conn: Connection, caller: Caller, message_id: int) -> Row:
    """Read a message that the caller may see.

    Raises:
        Problem: 404, also for a message of a topic that the caller may not see.
    """
    row = await run_async(conn, read_message(message_id))
    if row is None or not caller.sees(row["topic"]):
        raise not_found_problem(message_id)
    return redaction.shown_message(caller, fan_out.hide_copies(caller, row))


def not_found_problem(message_id: int) -> Problem:
    """Return the problem of a message that does not exist."""
    return Problem(404, f"message {message_id} does not exist, or has left the archive", "not_found", id=message_id)


@router.get(
    "/messages/{message_id}/explain",
    response_model=MessageExplanation,
    summary="Explain a message",
    responses=responses(404),
)
async def explain_message(request: Request, caller: Viewer, message_id: PathId) -> Response:
    """Explain why a message is not running, or how it ended."""
    async with reading(request) as conn:
        await _read_visible(conn, caller, message_id)
        reasons = await run_async(conn, explain(message_id))
    visible = [each for each in reasons if fan_out.may_see_reason(caller, each.code, each.detail_json)]
    return ApiResponse({"reasons": list(map(ExplainReason.of, visible))})


@router.get(
    "/messages/{message_id}/logs",
    response_model=MessageLogs,
    summary="Show the log lines of a message",
    responses=responses(404),
)
async def get_logs(request: Request, caller: Viewer, message_id: PathId) -> Response:
    """Return the log lines of the last 20 attempts of a message, if its topic keeps them."""
    async with reading(request) as conn:
        row = await _read_visible(conn, caller, message_id)
        logs = await read_rows(conn, find_logs(message_id))
    shown = [each | {"lines": redaction.shown_log(caller, row["topic"], each["lines"])} for each in logs]
    return ApiResponse({"logs": shown})


@router.post("/messages/cancel", response_model=ActionResult, summary="Cancel messages")
async def cancel_messages(request: Request, caller: Operator, body: MessageIdsWithReason) -> Response:
    """Cancel waiting or running messages; they are archived as cancelled."""
    return await _act(request, caller, body.ids, lambda ids: operate.cancel(ids, body.reason))


@router.post("/messages/delete", response_model=ActionResult, summary="Delete messages")
async def delete_messages(request: Request, caller: Operator, body: MessageIds) -> Response:
    """Delete waiting messages without archiving them; running messages stay. To keep a record, cancel them instead."""
    return await _act(request, caller, body.ids, operate.delete)


@router.post("/messages/skip", response_model=ActionResult, summary="Skip messages")
async def skip_messages(request: Request, caller: Operator, body: MessageIdsWithReason) -> Response:
    """Archive waiting messages as failed, so that those behind them in an ordered channel can run."""
    return await _act(request, caller, body.ids, lambda ids: operate.skip(ids, body.reason))


@router.post("/messages/retry", response_model=ActionResult, summary="Retry messages now")
async def retry_messages(request: Request, caller: Operator, body: MessageIds) -> Response:
    """Make delayed and retrying messages available now."""
    return await _act(request, caller, body.ids, operate.retry_now)


@router.post("/messages/unblock", response_model=ActionResult, summary="Unblock messages")
async def unblock_messages(request: Request, caller: Operator, body: MessageIds) -> Response:
    """Release messages that wait for others, whatever becomes of those."""
    return await _act(request, caller, body.ids, workflow.unblock)


async def _act(
    request: Request, caller: Caller, ids: list[int], action: Callable[[list[int]], Call[list[int]]]
) -> Response:
    async with writing(request, caller) as conn:
        mine = await own_messages(conn, caller, ids)
        done = await run_async(conn, action(mine)) if mine else []
    return ApiResponse({"done": sorted(done), "unchanged": sorted(set(ids) - set(done))})


async def own_messages(conn: Connection, caller: Caller, ids: list[int]) -> list[int]:
    """Return those of the messages whose topic the caller may see."""
    if caller.sees_all:
        return ids
    return [each.id for each in await run_async(conn, topics_of(ids)) if caller.sees(each.topic)]


# The detail of the problem, by the outcome of messages.edit.
EDIT_CONFLICTS = {
    "changed": "its payload has changed since you read it: read it again",
    "running": "it is running with the old payload",
    "ended": "it has ended",
}


@router.patch(
    "/messages/{message_id}", response_model=MessageDetail, summary="Edit a message", responses=responses(404, 409)
)
async def edit_message(request: Request, caller: Operator, message_id: PathId, body: EditRequest) -> Response:
    """Replace the payload or the headers of a waiting message.

    409 `running`, `ended` or `changed`: nothing was edited.
    """
    payload = body.payload.text if "payload" in body.model_fields_set else None
    headers = None if body.headers is None else body.headers.text
    async with writing(request, caller) as conn:
        await _read_visible(conn, caller, message_id)
        what = await run_async(conn, operate.edit(message_id, payload, headers, body.expected_md5))
        if what in EDIT_CONFLICTS:
            raise Problem(409, f"message {message_id}: {EDIT_CONFLICTS[what]}", what, id=message_id)
        row = await _read_visible(conn, caller, message_id)
    return ApiResponse(_detail(row))
