"""Audit: who did what by hand."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from pgrouse.web import search
from pgrouse.web.audit_detail import detail_lines
from pgrouse.web.audit_rows import VISIBLE
from pgrouse.web.caller import Caller, Role
from pgrouse.web.page import render
from pgrouse.web.problem import Problem
from pgrouse.web.security import require_role

router = APIRouter(include_in_schema=False)

Viewer = Annotated[Caller, Depends(require_role(Role.VIEWER))]

PAGE_SIZE = 50
# Of the latest so many actions a page looks through, whatever the filters.
MAX_SCANNED = 20_000
FILTERS = ("actor", "action", "topic", "target", "since", "until")

ROWS = f"""
  WITH scanned AS MATERIALIZED (
    SELECT a.id, a.at, a.actor, a.db_user, a.action, a.topic, a.target, a.detail
    FROM messages.audit AS a
    WHERE a.id < coalesce(%(before)s, 9223372036854775807)
    ORDER BY a.id DESC LIMIT %(max_scanned)s
  )
  SELECT a.*, false AS is_end FROM scanned AS a
  WHERE {VISIBLE}
    AND (%(actor)s::text IS NULL OR a.actor = %(actor)s)
    AND (%(action)s::text IS NULL OR translate(a.action, '_.', '  ') = translate(%(action)s, '_.', '  '))
    AND (%(topic)s::text IS NULL OR a.topic = %(topic)s OR a.detail -> 'topics' ? %(topic)s)
    AND (%(target)s::text IS NULL OR a.target = %(target)s OR a.detail -> 'ids' @> to_jsonb(%(target_id)s::bigint))
    AND (%(since)s::timestamptz IS NULL OR a.at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR a.at < %(until)s)
  ORDER BY a.id DESC LIMIT %(limit)s""".encode()  # noqa: S608 - constants only
LAST = b"SELECT min(a.id) AS id, count(*) AS scanned FROM (SELECT a.id FROM messages.audit AS a WHERE a.id < coalesce(%(before)s, 9223372036854775807) ORDER BY a.id DESC LIMIT %(max_scanned)s) AS a"

KNOWN_ACTIONS = b"""
  SELECT DISTINCT l.action FROM (SELECT a.action FROM messages.audit AS a ORDER BY a.id DESC LIMIT 1000) AS l ORDER BY l.action"""


@router.get("/audit")
async def audit(request: Request, caller: Viewer) -> Response:
    """Show what was done, the latest first."""
    params = request.query_params
    given = {name: params.get(name, "").strip()[:300] for name in FILTERS}
    before = params.get("before", "")
    error, rows, known, next_id = "", [], [], None
    try:
        values = _values(given, before, caller)
        async with request.app.state.db.read() as conn:
            rows = await (await conn.execute(ROWS, values)).fetchall()
            known = await (await conn.execute(KNOWN_ACTIONS)).fetchall()
            last = await (await conn.execute(LAST, values)).fetchone()
        if len(rows) > PAGE_SIZE:
            rows, next_id = rows[:PAGE_SIZE], rows[PAGE_SIZE - 1]["id"]
        elif last["scanned"] == MAX_SCANNED:
            next_id = last["id"]
    except Problem as problem:
        error = problem.detail
    shown = render(
        request,
        "audit.html",
        rows=[{**row, "detail_lines": detail_lines(row["action"], row["detail"])} for row in rows],
        filters=given,
        known_actions=[row["action"] for row in known],
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
    target = given["target"]
    is_id = target.isascii() and target.isdecimal() and int(target[:25]) < 2**63
    return {
        **{name: value or None for name, value in given.items()},
        "since": search.parse_time(given["since"], "since"),
        "until": search.parse_time(given["until"], "until"),
        "target_id": int(target) if is_id else None,
        "like": None if caller.sees_all else caller.like,
        "before": int(before) if before else None,
        "max_scanned": MAX_SCANNED,
        "limit": PAGE_SIZE + 1,
    }


def _address(given: dict[str, str], before: int | None) -> str:

    values = {name: value for name, value in given.items() if value} | ({"before": before} if before else {})
    return "/audit?" + urlencode(values)
