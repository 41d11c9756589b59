"""Workflows: messages that come after others."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls.monitoring.state import Workflow
from pgrouse.client.calls.workflow import WorkflowMessage
from pgrouse.client.queries.workflow import latest_workflows
from pgrouse.client.workflow_graph import WorkflowWord
from pgrouse.web.access.database_pool import reading, writing
from pgrouse.web.access.security import Operator, Viewer
from pgrouse.web.page.bulk_actions import BATCH_TIME
from pgrouse.web.search.workflow_graph import cancel_live, read_graph, read_workflows, redrive_dead
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.dead import RedriveOutcome, RedriveSettings
from pgrouse.web.v1.description.problem_responses import responses
from pgrouse.web.v1.model import CursorQuery, Limit, PathId, RequestModel, ResponseModel, Text, example, members_of
from pgrouse.web.v1.response import ApiResponse
from pgrouse.web.v1.route import StrictRoute

router = APIRouter(prefix="/v1/workflows", tags=["workflows"], route_class=StrictRoute)


@members_of(Workflow)
class WorkflowSummary(ResponseModel):
    """A workflow, and what became of its messages."""

    model_config = example(id=7, state="held", total=3, live=1, held=1, dead=1)

    state: WorkflowWord
    """`held`: a message waits for one that did not succeed. When all have ended: `failed` (some are dead), `cancelled`
    or `finished`."""


class WorkflowPage(ResponseModel):
    """A page of workflows, the latest first. With a state it may be short or even empty while `next` has more."""

    workflows: list[WorkflowSummary]
    next: str | None


@members_of(WorkflowMessage)
class WorkflowNode(ResponseModel):
    """A message of a workflow."""

    model_config = example(id=9, after=[7], state="blocked")

    after: list[int]
    """The messages that it comes after."""


class WorkflowDetail(WorkflowSummary):
    """A workflow with its messages, at most about 10,000, in the order in which they were published."""

    messages: list[WorkflowNode]
    """A message that was redriven is replaced by the one that it became."""


class WorkflowCancellation(RequestModel):
    """Why a workflow is cancelled."""

    model_config = example(reason="the order was withdrawn")

    reason: Text | None = None


class WorkflowCancelResult(ResponseModel):
    """How many messages were cancelled."""

    model_config = example(cancelled=3)

    cancelled: int
    """How many messages were cancelled."""


class WorkflowRedrive(RedriveSettings):
    """How the dead messages of a workflow are put back."""

    model_config = example(rate=50)


class WorkflowRedriveResult(ResponseModel):
    """What became of each dead message."""

    outcomes: list[RedriveOutcome]
    """What became of each message."""


@router.get("", response_model=WorkflowPage, summary="List workflows")
async def list_workflows(
    request: Request, caller: Viewer, state: WorkflowWord | None = None, cursor_: CursorQuery = None, limit: Limit = 50
) -> Response:
    """List workflows; of a large one the latest messages are counted."""
    before = cursor.decode_id("workflows", cursor_)
    async with reading(request) as conn:
        ids = await run_async(conn, latest_workflows(before=before, most=limit))
        shown = await read_workflows(conn, caller, ids, state)
    end = cursor.encode_end("workflows", ids, limit)
    return ApiResponse({"workflows": list(map(WorkflowSummary.of, shown)), "next": end})


@router.get("/{message_id}", response_model=WorkflowDetail, summary="Show a workflow", responses=responses(404))
async def get_workflow(request: Request, caller: Viewer, message_id: PathId) -> Response:
    """Return the workflow of a message: its own id is that of its first message."""
    async with reading(request) as conn:
        graph = await read_graph(conn, caller, message_id)
    return ApiResponse(WorkflowDetail.of(graph.workflow, messages=list(map(WorkflowNode.of, graph.messages))))


@router.post(
    "/{message_id}/cancel", response_model=WorkflowCancelResult, summary="Cancel a workflow", responses=responses(404)
)
async def cancel_workflow(
    request: Request, caller: Operator, message_id: PathId, body: WorkflowCancellation
) -> Response:
    """Cancel the messages of a workflow that have not ended, waiting or running, of the topics that the token names."""
    async with writing(request, caller, BATCH_TIME) as conn:
        did = await cancel_live(conn, caller, message_id, body.reason)
    return ApiResponse({"cancelled": len(did)})


@router.post(
    "/{message_id}/redrive",
    response_model=WorkflowRedriveResult,
    summary="Redrive the dead messages of a workflow",
    responses=responses(404),
)
async def redrive_workflow(request: Request, caller: Operator, message_id: PathId, body: WorkflowRedrive) -> Response:
    """Put the dead messages of a workflow back into the queue, of the topics that the token names."""
    async with writing(request, caller, BATCH_TIME) as conn:
        did = await redrive_dead(conn, caller, message_id, **body.model_dump())
    return ApiResponse({"outcomes": list(map(RedriveOutcome.of, did))})
