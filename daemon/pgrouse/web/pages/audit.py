"""Audit: who did what by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.queries.audit import end_of_latest, find_actions, known_actions
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.security import Viewer
from pgrouse.web.http.problem import Problem
from pgrouse.web.page.audit_detail import detail_lines
from pgrouse.web.page.page import render
from pgrouse.web.search import search

router = APIRouter(include_in_schema=False)


PAGE_SIZE = 50
# A page looks through at most this many actions, whatever the filters.
MAX_READ = 20_000
FILTERS = ("actor", "action", "topic", "target", "since", "until")


@router.get("/audit")
async def audit(request: Request, caller: Viewer) -> Response:
    """Show what was done, the latest first."""
    params = request.query_params
    given = {name: params.get(name, "").strip()[:300] for name in FILTERS}
    before = params.get("before", "")
    error, found, known, next_id = "", [], [], None
    try:
        values = _values(given, before, caller)
        async with request.app.state.db.read() as conn:
            found = await run_async(conn, find_actions(**values, limit=PAGE_SIZE + 1, most_read=MAX_READ))
            known = await run_async(conn, known_actions())
            last_id, read = await run_async(conn, end_of_latest(values["before"], MAX_READ))
        if len(found) > PAGE_SIZE:
            found, next_id = found[:PAGE_SIZE], found[PAGE_SIZE - 1].id
        elif read == MAX_READ:
            next_id = last_id
    except Problem as problem:
        error = problem.detail
    shown = render(
        request,
        "audit.html",
        rows=[asdict(each) | {"detail_lines": detail_lines(each.action, each.detail)} for each in found],
        filters=given,
        known_actions=known,
        is_filtered=any(given.values()),
        error=error,
        is_first=not before,
        first=_address(given, None),
        next=_address(given, next_id) if next_id else None,
    )
    shown.status_code = 422 if error else 200
    return shown


def _values(given: dict[str, str], before: str, caller: Caller) -> dict[str, Any]:
    if before and not (before.isascii() and before.isdecimal() and int(before[:25]) < 2**63):
        raise Problem(422, "before is not a position in this list: begin with its first page", "invalid_cursor")
    return {
        **{name: value or None for name, value in given.items()},
        "since": search.parse_time(given["since"], "since"),
        "until": search.parse_time(given["until"], "until"),
        "like": caller.like,
        "before": int(before) if before else None,
    }


def _address(given: dict[str, str], before: int | None) -> str:
    values = {name: value for name, value in given.items() if value} | ({"before": before} if before else {})
    return "/audit?" + urlencode(values)
