"""Workflows: messages that come after others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.datastructures import QueryParams
from starlette.responses import RedirectResponse, Response

from pgrouse.client.call import run_async
from pgrouse.client.calls.workflow import WorkflowMessage
from pgrouse.client.message_state import DEAD
from pgrouse.client.queries.workflow import latest_workflows
from pgrouse.client.redrive import REDRIVEN_OUTCOMES
from pgrouse.values.format import plural
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, reading, writing
from pgrouse.web.access.security import Operator, Viewer
from pgrouse.web.charts.workflow_drawing import draw
from pgrouse.web.http.problem import Problem
from pgrouse.web.page import view
from pgrouse.web.page.bulk_actions import BATCH_TIME
from pgrouse.web.page.page import render
from pgrouse.web.page.view import Context, View
from pgrouse.web.search.search import parse_id
from pgrouse.web.search.workflow_graph import (
    cancel_live,
    dead_ids,
    live_ids,
    read_graph,
    read_workflows,
    redrive_dead,
)

router = APIRouter()

PAGE_SIZE = 50
# With a filter each page looks through this many.
MAX_EXAMINED = 200
MESSAGES_PAGE = 100
STATE_KINDS = {"running": "info", "held": "bad", "failed": "bad", "cancelled": "warn", "finished": "good"}
# What the tabs of one workflow show.
TABS: dict[str, tuple[str, Callable[[WorkflowMessage], bool]]] = {
    "": ("All", lambda _: True),
    "live": ("Not ended", lambda each: each.is_live),
    "held": ("Held", lambda each: each.is_held),
    "dead": ("Dead", lambda each: each.state in DEAD),
    "cancelled": ("Cancelled", lambda each: each.state == "cancelled"),
    "success": ("Success", lambda each: each.state == "success"),
}
Reason = Annotated[str, Form(max_length=1000)]


async def read_context(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read a page of the workflows in a state, the latest first."""
    params = QueryParams(subject)
    state, before = params.get("state", ""), params.get("before", "")
    if state and state not in STATE_KINDS:
        raise Problem(422, f"there is no state {state[:50]!r}: use one of {', '.join(STATE_KINDS)}", "invalid_filter")
    most = MAX_EXAMINED if state else PAGE_SIZE
    ids = await run_async(conn, latest_workflows(before=parse_id(before) if before else None, most=most))
    return {
        "workflows": await read_workflows(conn, caller, ids, state or None),
        "state": state,
        "kinds": STATE_KINDS,
        "is_first": not before,
        "next": ids[-1] if len(ids) == most else None,
    }


async def read_workflow(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read one workflow: the subject is its id, then the query of the address."""
    workflow_id, _, query = subject.partition("?")
    params = QueryParams(query)
    graph = await read_graph(conn, caller, parse_id(workflow_id))
    tab = params.get("state", "")
    _, belongs = TABS.get(tab, TABS[""])
    listed = [each for each in graph.messages if belongs(each)]
    begin = parse_id(params.get("from", "") or "0")
    return {
        "workflow": graph.workflow,
        "graph": graph,
        "drawing": draw(graph.messages),
        "batches": sorted({each.batch_id for each in graph.messages if each.batch_id})[:20],
        "kinds": STATE_KINDS,
        "tab": tab,
        "tabs": [(name, title, sum(map(fits, graph.messages))) for name, (title, fits) in TABS.items()],
        "listed": listed[begin : begin + MESSAGES_PAGE],
        "begin": begin,
        "page_size": MESSAGES_PAGE,
        "count": len(listed),
        "cancellable": len(live_ids(caller, graph)),
        "redrivable": len(dead_ids(caller, graph)),
    }


VIEW = View("workflows", read_context, parts=("list",))
ONE = View("workflows/workflow", read_workflow, parts=("facts", "drawing", "messages"))


@router.get("/workflows")
async def workflows(request: Request, caller: Viewer) -> Response:
    """Show the page."""
    return await view.show(request, caller, VIEW, request.url.query)


@router.get("/workflows/{message_id}")
async def workflow(request: Request, message_id: str, caller: Viewer) -> Response:
    """Show the workflow of a message."""
    subject = f"{parse_id(message_id)}?{request.url.query}".rstrip("?")
    async with reading(request) as conn:
        context = await ONE.read_all(conn, caller, subject)
    found = context["workflow"].id
    if found != parse_id(message_id):
        return RedirectResponse(f"/workflows/{found}", 303)
    return render(request, "workflows/workflow/page.html", **context, live_url=ONE.live_url(subject))


@router.post("/workflows/{workflow_id}/cancel")
async def cancel(request: Request, workflow_id: str, caller: Operator, reason: Reason = "") -> Response:
    """Cancel what has not ended."""
    async with writing(request, caller, BATCH_TIME) as conn:
        did = await cancel_live(conn, caller, parse_id(workflow_id), reason.strip() or None)
    return await view.action_result(request, caller, ONE, f"{plural(len(did), 'message')} cancelled.", workflow_id)


@router.post("/workflows/{workflow_id}/redrive")
async def redrive(request: Request, workflow_id: str, caller: Operator) -> Response:
    """Put its dead messages back."""
    async with writing(request, caller, BATCH_TIME) as conn:
        did = await redrive_dead(conn, caller, parse_id(workflow_id))
    back = sum(each.outcome in REDRIVEN_OUTCOMES for each in did)
    left = f"; {len(did) - back:,} stay dead" if back < len(did) else ""
    return await view.action_result(request, caller, ONE, f"{plural(back, 'message')} redriven{left}.", workflow_id)
