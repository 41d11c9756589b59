"""Workflows: messages that come after others."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from pgrouse.client.queries.workflow import Workflow, WorkflowMessage, WorkflowWord, find_workflows
from pgrouse.web.access.database_pool import reading, run_read
from pgrouse.web.access.security import Viewer
from pgrouse.web.search.workflow_graph import read_graph
from pgrouse.web.v1 import cursor
from pgrouse.web.v1.description.problem_responses import responses
from pgrouse.web.v1.model import CursorQuery, Limit, PathId, ResponseModel, example, members_of
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


@members_of(WorkflowMessage, without=("redriven_as",))
class WorkflowNode(ResponseModel):
    """A message of a workflow."""

    model_config = example(id=9, after=[7], state="blocked")

    after: list[int]
    """The messages that it comes after."""


class WorkflowDetail(WorkflowSummary):
    """A workflow with its messages, at most about 10,000, in the order in which they were published."""

    messages: list[WorkflowNode]
    """A message that was redriven is replaced by the one that it became."""


@router.get("", response_model=WorkflowPage, summary="List workflows")
async def list_workflows(
    request: Request, caller: Viewer, state: WorkflowWord | None = None, cursor_: CursorQuery = None, limit: Limit = 50
) -> Response:
    """List workflows; of a large one the latest messages are counted."""
    before = cursor.decode_id("workflows", cursor_)
    found = await run_read(request, find_workflows(before=before, regexps=caller.regexps, most=limit))
    shown = [each for each in found if each.total and state in (None, each.state)]
    end = cursor.encode_end("workflows", [each.id for each in found], limit)
    return ApiResponse({"workflows": list(map(WorkflowSummary.of, shown)), "next": end})


@router.get("/{message_id}", response_model=WorkflowDetail, summary="Show a workflow", responses=responses(404))
async def get_workflow(request: Request, caller: Viewer, message_id: PathId) -> Response:
    """Return the workflow of a message: its own id is that of its first message."""
    async with reading(request) as conn:
        graph = await read_graph(conn, caller, message_id)
    return ApiResponse(WorkflowDetail.of(graph.workflow, messages=list(map(WorkflowNode.of, graph.messages))))
