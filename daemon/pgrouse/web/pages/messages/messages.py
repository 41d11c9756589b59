"""Messages: a live list with filters, and how many messages are in each state, topic and worker."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import psycopg
from fastapi import APIRouter, Request
from starlette.datastructures import QueryParams
from starlette.responses import RedirectResponse, Response

from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, reading
from pgrouse.web.access.redaction import shown_preview
from pgrouse.web.access.security import Viewer
from pgrouse.web.charts.message_charts import read_message_charts
from pgrouse.web.http.problem import Problem, database_problem
from pgrouse.web.page import bulk_actions
from pgrouse.web.page.bulk_actions import BulkAction
from pgrouse.web.page.page import render
from pgrouse.web.page.view import Context, View
from pgrouse.web.search import search
from pgrouse.web.search.message_counts import read_counts
from pgrouse.web.search.search import Search, SearchPage, parse_id
from pgrouse.web.search.suggestions import read_headers, suggest

router = APIRouter()

# Enough of most payloads to suggest their paths; the list shows less.
PREVIEW_CHARS = 1000
MAX_PREVIEW_CHARS = 10_000
# The maximum number of pages that links lead back; after that, a link leads to the first page.
MAX_BACK_LINKS = 15
INVALID = 422

STATES = [
    ("", "All"),
    ("running", "Running"),
    ("ready", "Ready"),
    ("scheduled", "Delayed"),
    ("blocked", "Blocked"),
    ("retrying", "Retrying"),
    ("waiting", "Waiting"),
    ("success", "Success"),
    ("dead", "Dead"),
    ("cancelled", "Cancelled"),
]
SORTS = [
    ("", "default order"),
    ("oldest", "oldest first"),
    ("attempts", "most attempts"),
    ("topic", "topic"),
    ("worker", "worker"),
]


async def read_context(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read the page of the messages that fit the filters of an address, which is the subject."""
    params = QueryParams(subject)
    wanted, after, back = Search.of(params), params.get("after", ""), params.getlist("back")
    counts = await read_counts(conn, caller, wanted)
    error, found, page_size = "", SearchPage([], None, 0, None), 0
    try:
        page_size = search.parse_size(wanted.size)
        found = await _find(conn, wanted, caller, after, page_size)
    except Problem as problem:
        if problem.status != INVALID:
            raise
        # The filters stay, so that they can be fixed.
        error = problem.detail
    return {
        "search": wanted,
        "found": found,
        "error": error,
        "page_size": page_size,
        "sizes": search.SIZES,
        "states": STATES,
        "sorts": SORTS,
    } | {
        "counts": counts,
        "acts": [] if error else _acts(wanted),
        "is_first": not after,
        "tab": lambda name, value: "/messages?" + replace(wanted, **{name: value}).query(),
        **_pages(replace(wanted, sort=""), found, after, back),
    }


async def _find(conn: Connection, wanted: Search, caller: Caller, after: str, page_size: int) -> SearchPage:
    arguments, place = wanted.arguments(caller), search.parse_cursor(after)
    # The function that redacts a payload needs all of it.
    chars = PREVIEW_CHARS if caller.redactor is None else MAX_PREVIEW_CHARS
    try:
        async with conn.transaction():
            if wanted.sort:
                found = await search.find_sorted(conn, arguments, wanted.sort, page_size, chars)
            else:
                found = await search.find(conn, arguments, limit=page_size, preview=chars, after=place)
        return replace(found, rows=[row | {"preview": shown_preview(caller, row, PREVIEW_CHARS)} for row in found.rows])
    except psycopg.Error as error:
        if (problem := database_problem(error)).status == INVALID:
            raise problem from None
        raise


async def read_measures(conn: Connection, caller: Caller, subject: str) -> Context:
    """Read the charts that follow the filters."""
    return await read_message_charts(conn, caller, Search.of(QueryParams(subject)))


def _acts(wanted: Search) -> list[BulkAction]:
    """Return the actions that some of the messages may accept."""
    return [act for act in BulkAction if bulk_actions.actionable({"states": wanted.states}, act)["states"]]


def _pages(wanted: Search, found: SearchPage, after: str, back: list[str]) -> dict[str, str | None]:
    """Return the links to the next page and to the one before."""
    place = json.dumps(found.cursor, separators=(",", ":")) if found.cursor is not None else ""
    trail = [*back, after or "-"][-MAX_BACK_LINKS:]
    return {
        "next": f"/messages?{wanted.query(after=place, back=trail)}" if place else None,
        "before": _before(wanted, after, back),
    }


def _before(wanted: Search, after: str, back: list[str]) -> str | None:
    if not after:
        return None
    *trail, place = back or ["-"]
    return f"/messages?{wanted.query(after='' if place == '-' else place, back=trail)}"


VIEW = View("messages", read_context, parts=("states", "facets", "found"), read_measures=read_measures)


@router.get("/messages")
async def messages(request: Request, caller: Viewer) -> Response:
    """Show a page of the messages that fit the filters of the address, and keep it up to date."""
    params = request.query_params
    if params.get("id", "").strip():
        return RedirectResponse(f"/messages/{parse_id(params['id'])}", 303)
    subject = request.url.query
    async with reading(request) as conn:
        context = await VIEW.read_all(conn, caller, subject)
        rows = context["found"].rows
        context["suggestions"] = suggest(rows, await read_headers(conn, rows) if caller.redactor is None else [])
    live: dict[str, Any] = {} if context["error"] else {"live_url": VIEW.live_url(subject)}
    shown = render(request, "messages/page.html", **context, **live)
    shown.status_code = INVALID if context["error"] else 200
    return shown
