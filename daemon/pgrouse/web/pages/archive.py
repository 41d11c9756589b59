"""Archive: what is kept of messages that ended, for how long, and the exports that read it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls.export import delete_export, list_exports
from pgrouse.client.queries.archive import archive_days, retentions
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, run_write
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.page import view
from pgrouse.web.page.view import Context, View

router = APIRouter()


MAX_DAYS = 100


async def read_context(conn: Connection, caller: Caller, _subject: str) -> Context:
    """Read the days, the retention of each topic and the exports; for callers of all topics."""
    check_permission(caller, Role.VIEWER)
    # The default partition, which is of no day, is empty unless messages with a long retention of their own are kept
    # there, or the maintenance has not run for a week.
    days = [each for each in await run_async(conn, archive_days()) if each.day is not None or each.is_filled]
    return {
        "days": days[:MAX_DAYS],
        "older": days[MAX_DAYS:],
        "has_messages": any(each.is_filled for each in days),
        "bytes": sum(each.bytes for each in days),
        "one_day_ago": datetime.now(UTC) - timedelta(days=1),
        "most": max((each.bytes for each in days), default=1),
        "retention": await run_async(conn, retentions()),
        "exports": await run_async(conn, list_exports()),
    }


VIEW = View("archive", read_context, parts=("exports",))


@router.get("/archive")
async def archive(request: Request, caller: Viewer) -> Response:
    """Show the page."""
    return await view.show(request, caller, VIEW)


@router.post("/archive/exports/delete")
async def delete(request: Request, caller: Operator, name: Annotated[str, Form(max_length=200)]) -> Response:
    """Forget an export, so that the retention does not wait for it."""
    check_permission(caller, Role.OPERATOR)
    was_known = await run_write(request, caller, delete_export(name))
    text = f"The export {name} is deleted." if was_known else f"There was no export {name}."
    return await view.action_result(request, caller, VIEW, text)
