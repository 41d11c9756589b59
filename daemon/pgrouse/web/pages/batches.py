"""Batches: messages that are counted together."""

from __future__ import annotations

from typing import Annotated, cast
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Request
from starlette.datastructures import QueryParams
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls import batch as calls
from pgrouse.client.queries.batch import BatchWord, find_batches
from pgrouse.client.redrive import REDRIVEN_OUTCOMES
from pgrouse.values.format import plural
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection
from pgrouse.web.access.security import Operator, Viewer
from pgrouse.web.http.problem import Problem
from pgrouse.web.page import view
from pgrouse.web.page.view import Context, View
from pgrouse.web.search.search import SIZES, parse_id, parse_size, parse_time
from pgrouse.web.v1.batch import operate, read_visible

router = APIRouter()

# A request acts on this many messages; what is left is done by the next.
PAGE = 10_000
FILTERS = ("state", "since", "until", "size")
STATE_KINDS = {"open": "info", "closed": "info", "cancelled": "warn", "finished": "good"}
Reason = Annotated[str, Form(max_length=500)]


async def read_context(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read a page of the batches that the caller may see and that fit the filters of an address, the newest first."""
    params = QueryParams(subject)
    given = {name: params.get(name, "").strip() for name in FILTERS}
    before, most = params.get("before", ""), parse_size(given["size"])
    if given["state"] not in ("", *STATE_KINDS):
        raise Problem(
            422, f"there is no state {given['state'][:50]!r}: use one of {', '.join(STATE_KINDS)}", "invalid_filter"
        )
    call = find_batches(
        cast("BatchWord", given["state"]) or None,
        creator=None if caller.sees_all else caller.name,
        since=parse_time(given["since"], "since"),
        until=parse_time(given["until"], "until"),
        before=parse_id(before, "batch") if before else None,
        most=most,
    )
    found = await run_async(conn, call)
    query = {name: value for name, value in given.items() if value}
    return {
        "batches": found,
        "kinds": STATE_KINDS,
        "filters": given,
        "sizes": SIZES,
        "first": f"/batches?{urlencode(query)}" if before else None,
        "next": f"/batches?{urlencode({**query, 'before': found[-1].id})}" if len(found) == most else None,
    }


async def read_batch(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read one batch."""
    if not subject.isdecimal() or int(subject) >= 2**63:
        raise Problem(404, f"there is no batch {subject:.50}", "not_found")
    return {"batch": await read_visible(conn, caller, int(subject)), "kinds": STATE_KINDS}


VIEW = View("batches", read_context, parts=("list",))
ONE = View("batches/batch", read_batch, parts=("facts",))


@router.get("/batches")
async def batches(request: Request, caller: Viewer) -> Response:
    """Show the page."""
    return await view.show(request, caller, VIEW, request.url.query)


@router.get("/batches/{batch_id}")
async def batch(request: Request, batch_id: str, caller: Viewer) -> Response:
    """Show one batch."""
    return await view.show(request, caller, ONE, batch_id)


@router.post("/batches/{batch_id}/close")
async def close(request: Request, batch_id: int, caller: Operator) -> Response:
    """Close it."""
    was_open = await operate(request, caller, batch_id, calls.close_batch(batch_id))
    text = f"Batch {batch_id} is closed." if was_open else f"Batch {batch_id} was closed already."
    return await view.action_result(request, caller, ONE, text, str(batch_id))


@router.post("/batches/{batch_id}/cancel")
async def cancel(request: Request, batch_id: int, caller: Operator, reason: Reason = "") -> Response:
    """Cancel what has not ended."""
    did = await operate(request, caller, batch_id, calls.cancel_batch(batch_id, reason.strip() or None, PAGE))
    more = " Cancel again for the rest." if did == PAGE else ""
    text = f"{plural(did, 'message')} cancelled.{more}"
    return await view.action_result(request, caller, ONE, text, str(batch_id))


@router.post("/batches/{batch_id}/redrive")
async def redrive(request: Request, batch_id: int, caller: Operator) -> Response:
    """Put its dead messages back."""
    rows = await operate(request, caller, batch_id, calls.redrive_batch(batch_id, PAGE))
    back = sum(each.outcome in REDRIVEN_OUTCOMES for each in rows)
    left = f"; {len(rows) - back:,} stay dead" if back < len(rows) else ""
    return await view.action_result(request, caller, ONE, f"{plural(back, 'message')} redriven{left}.", str(batch_id))
