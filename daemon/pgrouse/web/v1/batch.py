"""Batches: messages that are counted together, and what is published when they have ended."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from pgrouse.client.call import Call, run_async
from pgrouse.client.calls import batch as calls
from pgrouse.client.calls.batch import BatchProgress, BatchState
from pgrouse.client.queries.batch import BatchWord, find_batches
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, reading, run_read, writing
from pgrouse.web.access.security import Operator, Publisher, Viewer, check_permission
from pgrouse.web.http.problem import Problem
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.dead import RedriveOutcome, RedriveSettings
from pgrouse.web.v1.description.problem_responses import responses
from pgrouse.web.v1.model import (
    MAX_ITEMS,
    CursorQuery,
    JsonObject,
    Label,
    Limit,
    PathId,
    RequestModel,
    ResponseModel,
    Text,
    Topic,
    example,
    members_of,
)
from pgrouse.web.v1.response import ApiResponse
from pgrouse.web.v1.route import StrictRoute

T = TypeVar("T")

router = APIRouter(prefix="/v1/batches", tags=["batches"], route_class=StrictRoute)


class NewBatch(RequestModel):
    """A batch to create."""

    model_config = example(name="import 2027-01-31", on_finish="imports.finished", metadata={"file": "orders.csv"})

    name: Label | None = None
    on_finish: Topic | None = None
    """The topic that gets a message when the batch is closed and all its messages have ended."""
    on_failure: Topic | None = None
    """The topic that gets a message when the first of its messages dies."""
    on_success: Topic | None = None
    """The topic that gets a message when all its messages have succeeded."""
    metadata: JsonObject | None = None
    """What those messages and the batch show: an object of at most 64 KiB."""


@members_of(BatchState)
class BatchSummary(ResponseModel):
    """A batch."""

    model_config = example(id=7, name="import 2027-01-31", state="open", total=3, live=1, succeeded=2)

    callbacks: dict[str, Any] | None


@members_of(BatchProgress)
class BatchDetail(ResponseModel):
    """A batch, with its metadata."""

    model_config = example(id=7, name="import 2027-01-31", state="open", total=3, live=1, succeeded=2)

    callbacks: dict[str, Any] | None
    metadata: dict[str, Any] | None
    """What its creator said of it."""


class BatchPage(ResponseModel):
    """A page of batches, the newest first."""

    batches: list[BatchSummary]
    next: str | None


class BatchCancellation(RequestModel):
    """Why a batch is cancelled."""

    model_config = example(reason="the file was the wrong one")

    reason: Text | None = None
    limit: int = Field(default=MAX_ITEMS, ge=1, le=10_000)
    """How many messages are cancelled at most."""


class BatchCancelResult(ResponseModel):
    """How many messages were cancelled; repeat the request until it is 0."""

    model_config = example(cancelled=12)

    cancelled: int
    """How many messages were cancelled."""


class BatchRedrive(RedriveSettings):
    """Which dead messages of the batch are put back, and how."""

    model_config = example(limit=1000, rate=50)

    limit: int = Field(default=MAX_ITEMS, ge=1, le=10_000)
    after: int = Field(default=0, ge=0, le=2**63 - 1)
    """The last `archived_id` of the request before."""


class BatchRedriveResult(ResponseModel):
    """What became of each message; none: there are no more."""

    outcomes: list[RedriveOutcome]
    """What became of each message."""


@router.get("", response_model=BatchPage, summary="List batches")
async def list_batches(
    request: Request, caller: Viewer, state: BatchWord | None = None, cursor_: CursorQuery = None, limit: Limit = 100
) -> Response:
    """List the batches; a token with some topics sees those that it created."""
    before = cursor.decode_id("batches", cursor_)
    creator = None if caller.sees_all else caller.name
    found = await run_read(request, find_batches(state, creator=creator, before=before, most=limit))
    end = cursor.encode_end("batches", [each.id for each in found], limit)
    return ApiResponse({"batches": list(map(BatchSummary.of, found)), "next": end})


@router.get("/{batch_id}", response_model=BatchDetail, summary="Show a batch", responses=responses(404))
async def get_batch(request: Request, caller: Viewer, batch_id: PathId) -> Response:
    """Return a batch: its state, its counts and its estimated end."""
    async with reading(request) as conn:
        found = await read_visible(conn, caller, batch_id)
    return ApiResponse(BatchDetail.of(found))


async def read_visible(conn: Connection, caller: Caller, batch_id: int) -> BatchProgress:
    """Return a batch that the caller may see.

    Its messages may be of any topic, so a token with some topics sees only what it created.

    Raises:
        Problem: 404.
    """
    found = await run_async(conn, calls.batch_progress(batch_id))
    if found is None or not (caller.sees_all or found.created_by == caller.name):
        raise Problem(404, f"there is no batch {batch_id}", "not_found")
    return found


@router.post("", status_code=201, response_model=BatchDetail, summary="Create a batch")
async def create_batch(request: Request, caller: Publisher, body: NewBatch) -> Response:
    """Create a batch. Publish into it with `batch`, then close it."""
    for topic in filter(None, (body.on_finish, body.on_failure, body.on_success)):
        check_permission(caller, Role.PUBLISHER, topic)
    metadata = None if body.metadata is None else body.metadata.text
    async with writing(request, caller) as conn:
        call = calls.create_batch(body.name, body.on_finish, body.on_failure, body.on_success, metadata)
        batch_id = await run_async(conn, call)
        found = await read_visible(conn, caller, batch_id)
    return ApiResponse(BatchDetail.of(found), 201, {"Location": f"/v1/batches/{batch_id}"})


@router.post("/{batch_id}/close", response_model=BatchDetail, summary="Close a batch", responses=responses(404))
async def close_batch(request: Request, caller: Publisher, batch_id: PathId) -> Response:
    """Close a batch: it is finished when all its messages have ended."""
    async with writing(request, caller) as conn:
        await read_visible(conn, caller, batch_id)
        await run_async(conn, calls.close_batch(batch_id))
        found = await read_visible(conn, caller, batch_id)
    return ApiResponse(BatchDetail.of(found))


@router.post(
    "/{batch_id}/cancel",
    response_model=BatchCancelResult,
    summary="Cancel the messages of a batch",
    responses=responses(404),
)
async def cancel_batch(request: Request, caller: Operator, batch_id: PathId, body: BatchCancellation) -> Response:
    """Cancel messages that have not ended, waiting or running; nothing comes into the batch any more.

    It needs the role for all topics.
    """
    did = await operate(request, caller, batch_id, calls.cancel_batch(batch_id, body.reason, body.limit))
    return ApiResponse({"cancelled": did})


@router.post(
    "/{batch_id}/redrive",
    response_model=BatchRedriveResult,
    summary="Redrive the dead messages of a batch",
    responses=responses(404),
)
async def redrive_batch(request: Request, caller: Operator, batch_id: PathId, body: BatchRedrive) -> Response:
    """Put dead messages of a batch back into the queue. It needs the role for all topics."""
    call = calls.redrive_batch(batch_id, body.limit, body.rate, body.delay, body.force, body.after)
    did = await operate(request, caller, batch_id, call)
    return ApiResponse({"outcomes": list(map(RedriveOutcome.of, did))})


async def operate(request: Request, caller: Caller, batch_id: int, call: Call[T]) -> T:
    """Do something to a batch; its messages may be of any topic.

    Raises:
        Problem: 403; 404.
    """
    check_permission(caller, Role.OPERATOR)
    async with writing(request, caller) as conn:
        await read_visible(conn, caller, batch_id)
        return await run_async(conn, call)
