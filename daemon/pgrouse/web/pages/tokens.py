"""Tokens: who may use this server, and for what.

A token is made by the command line only: who steals the session of an operator must not be able to make one that
outlives it.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from pgrouse.client.calls.web import revoke_token
from pgrouse.client.queries.token import find_tokens
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, read_rows, run_write
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.page import view
from pgrouse.web.page.view import Context, View

router = APIRouter()

STATE_KINDS = {"good": "good", "expired": "warn", "revoked": ""}


async def read_context(conn: Connection, caller: Caller, _subject: str) -> Context:
    """Read all tokens, without their secrets; for callers of all topics."""
    check_permission(caller, Role.VIEWER)
    rows = await read_rows(conn, find_tokens())
    # What can be used stands first.
    return {"tokens": sorted(rows, key=lambda row: list(STATE_KINDS).index(row["state"])), "state_kinds": STATE_KINDS}


VIEW = View("tokens", read_context, parts=("list",))


@router.get("/tokens")
async def tokens(request: Request, caller: Viewer) -> Response:
    """Show the page."""
    return await view.show(request, caller, VIEW)


@router.post("/tokens/revoke")
async def revoke(request: Request, caller: Operator, name: Annotated[str, Form(max_length=300)]) -> Response:
    """End a token and its sessions."""
    check_permission(caller, Role.OPERATOR)
    was_good = await run_write(request, caller, revoke_token(name))
    text = f"{name} is revoked." if was_good else f"{name} was not valid before."
    return await view.action_result(request, caller, VIEW, text)
