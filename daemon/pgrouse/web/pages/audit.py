"""Audit: who did what by hand."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.datastructures import QueryParams
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.queries.audit import end_of_latest, find_actions, known_actions
from pgrouse.config import duration
from pgrouse.values.format import harmless
from pgrouse.web.access import redaction
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, reading
from pgrouse.web.access.security import Viewer
from pgrouse.web.http.problem import Problem
from pgrouse.web.page.formatting import NONE
from pgrouse.web.page.page import render
from pgrouse.web.page.view import Context, View
from pgrouse.web.search import search

router = APIRouter()


# A page looks through at most this many actions, whatever the filters.
MAX_READ = 20_000
FILTERS = ("actor", "action", "topic", "target", "since", "until")
INVALID = 422


async def read_context(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read the actions that fit the filters of an address, which is the subject, the latest first."""
    params = QueryParams(subject)
    given = {name: params.get(name, "").strip()[:300] for name in FILTERS}
    before, size = params.get("before", ""), params.get("size", "")
    error, found, known, next_id = "", [], [], None
    try:
        values, most = _values(given, before, caller), search.parse_size(size)
        found = await run_async(conn, find_actions(**values, limit=most + 1, most_read=MAX_READ))
        known = await run_async(conn, known_actions())
        last_id, read = await run_async(conn, end_of_latest(values["before"], MAX_READ))
        if len(found) > most:
            found, next_id = found[:most], found[most - 1].id
        elif read == MAX_READ:
            next_id = last_id
    except Problem as problem:
        error = problem.detail
    return {
        "rows": [
            asdict(each)
            | {"detail_lines": detail_lines(each.action, redaction.shown_detail(caller, each.topic, each.detail))}
            for each in found
        ],
        "filters": given,
        "size": size,
        "sizes": search.SIZES,
        "known_actions": known,
        "is_filtered": any(given.values()),
        "error": error,
        "is_first": not before,
        "first": _address({**given, "size": size}, None),
        "next": _address({**given, "size": size}, next_id) if next_id else None,
    }


VIEW = View("audit", read_context, parts=("found",))


@router.get("/audit")
async def audit(request: Request, caller: Viewer) -> Response:
    """Show what was done, and keep it up to date."""
    subject = request.url.query
    async with reading(request) as conn:
        context = await VIEW.read_all(conn, caller, subject)
    live: dict[str, Any] = {} if context["error"] else {"live_url": VIEW.live_url(subject)}
    shown = render(request, "audit/page.html", **context, **live)
    shown.status_code = INVALID if context["error"] else 200
    return shown


def _values(given: dict[str, str], before: str, caller: Caller) -> dict[str, Any]:
    if before and not (before.isascii() and before.isdecimal() and int(before[:25]) < 2**63):
        raise Problem(422, "before is not a position in this list: begin with its first page", "invalid_cursor")
    return {
        **{name: value or None for name, value in given.items()},
        "since": search.parse_time(given["since"], "since"),
        "until": search.parse_time(given["until"], "until"),
        "topics": caller.limited_to,
        "before": int(before) if before else None,
    }


def _address(given: dict[str, str], before: int | None) -> str:
    values = {name: value for name, value in given.items() if value} | ({"before": before} if before else {})
    return "/audit?" + urlencode(values)


MAX_VALUE_CHARS = 400  # characters of one value
# As PostgreSQL writes an interval: `3 days 01:00:00`.
INTERVAL = re.compile(r"(?:(\d{1,9}) days? ?)?(?:(\d{1,9}):(\d\d):(\d\d(?:\.\d{1,6})?))?", re.ASCII)
# What a schedule has unless it says otherwise, and what stands in other columns.
DEFAULTS = {
    "add_schedule": {
        "jitter": "00:00:00",
        "missed": "once",
        "payload": {},
        "priority": 5,
        "time_zone": "UTC",
        "missed_limit": 100,
        "while_paused": "publish",
    }
}
OTHER_COLUMNS = {"add_schedule": ("name", "topic")}

Line = tuple[str, str, str | None]


def detail_lines(action: str, detail: dict[str, Any]) -> list[Line]:
    """Return name, value, and of a change the value it had before; not what is in other columns, nor defaults."""
    changes = detail.get("changes")
    values = {name: (value, None) for name, value in detail.items() if name != "changes" or not isinstance(value, dict)}
    if isinstance(changes, dict):
        values |= {name: (each.get("new"), each.get("old")) for name, each in changes.items() if isinstance(each, dict)}
    return [
        (name, _text(new), None if old is None else _text(old))
        for name, (new, old) in values.items()
        if not _goes_without_saying(action, name, new)
    ]


def _goes_without_saying(action: str, name: str, value: Any) -> bool:
    defaults = DEFAULTS.get(action, {})
    return name in OTHER_COLUMNS.get(action, ()) or (name in defaults and value == defaults[name])


def _text(value: Any) -> str:
    text = _plain(value)
    return harmless(text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…")


def _plain(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, str):
        return _interval(value) or _moment(value) or value
    if isinstance(value, list) and value and all(isinstance(each, int) for each in value):
        return ", ".join(map(str, value))
    if isinstance(value, dict) and value and all(type(each) is int for each in value.values()):
        # Counts: those of 0 say nothing.
        return ", ".join(f"{name} {count}" for name, count in value.items() if count) or "nothing"
    return json.dumps(value, ensure_ascii=False)


def _interval(text: str) -> str | None:
    """Return an interval as it is typed, `1h30m`; None: it is none."""
    found = INTERVAL.fullmatch(text)
    if not text or found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    try:
        return duration.show(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds))
    except OverflowError:
        return None


def _moment(text: str) -> str | None:
    """Return a time in UTC, to the second; None: it is none."""
    if "T" not in text:
        return None
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at.tzinfo else None
    except (ValueError, OverflowError):
        return None
