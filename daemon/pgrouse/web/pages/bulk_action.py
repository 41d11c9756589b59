"""Actions on many messages: a preview, a question, and batches that say how far they are."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import psycopg
from fastapi import APIRouter, Request
from starlette.datastructures import FormData
from starlette.responses import Response

from pgrouse.web.access.database_pool import reading, writing
from pgrouse.web.access.security import Operator
from pgrouse.web.http.problem import Problem, database_problem
from pgrouse.web.page import bulk_actions
from pgrouse.web.page.bulk_actions import BulkAction, parse_rate
from pgrouse.web.page.page import render
from pgrouse.web.search import search
from pgrouse.web.search.message_counts import estimate_waiting
from pgrouse.web.search.search import Search, parse_id

router = APIRouter()

MAX_SELECTED = 500
MAX_REASON_CHARS = 1000


@router.get("/messages/preview")
async def preview(request: Request, caller: Operator) -> Response:
    """Say how many messages an action would be done to, and ask."""
    params = request.query_params
    act, ids, wanted = _act(params.get("act")), _ids(params.getlist("chosen")), Search.of(params)
    estimate = None
    async with reading(request) as conn:
        confirmation = await bulk_actions.confirm_now(conn)
        if ids:
            seen = bulk_actions.preview_selected(await bulk_actions.selected(conn, caller, act, ids))
        elif "chosen" in params or "selected" in params:
            raise Problem(422, "nothing is selected: select some messages first", "nothing_selected")
        else:
            arguments = bulk_actions.actionable(wanted.arguments(caller), act)
            seen = await bulk_actions.preview(conn, confirmation.narrow(arguments))
            if seen.at_least:
                estimate = await estimate_waiting(conn, caller, wanted, arguments["states"], at_least=seen.count)
    confirmation = replace(confirmation, most=seen.count)
    fields = {"act": act.value, **confirmation.fields, **wanted.filters(), "ids": ",".join(map(str, ids))}
    context = {
        "act": act,
        "preview": seen,
        "estimate": estimate,
        "fields": fields,
        "search": wanted,
        "chosen": bool(ids),
    }
    return render(request, "bulk_action/preview.html", **context)


@router.post("/messages/bulk")
async def run_bulk_action(request: Request, caller: Operator) -> Response:
    """Do the next batch, and say how far it is."""
    form = await request.form()
    act, ids, wanted = _act(form.get("act")), _ids([str(form.get("ids") or "")]), Search.of(_texts(form))
    so_far, after, error = bulk_actions.parse_progress(str(form.get("so_far") or "")), str(form.get("after") or ""), ""
    rate, how = _options(form, act, so_far)
    confirmation = bulk_actions.Confirmation.selected(len(ids)) if ids else bulk_actions.Confirmation.of(_texts(form))
    try:
        async with writing(request, caller, bulk_actions.BATCH_TIME) as conn:
            if ids:
                batch, place = [row["id"] for row in await bulk_actions.selected(conn, caller, act, ids)], None
                missed = len(ids) - len(batch)
            else:
                arguments = confirmation.narrow(bulk_actions.actionable(wanted.arguments(caller), act))
                most = confirmation.remaining(so_far)
                found = await search.find(conn, arguments, limit=max(1, most), after=search.parse_cursor(after))
                batch = [each for each in found.ids if each <= confirmation.max_id][:most]
                place, missed = found.cursor, 0
            outcomes = await bulk_actions.run(conn, act, batch, **how)
        so_far += outcomes + Counter(gone=missed)
        place = place if confirmation.remaining(so_far) else None
        after = json.dumps(place) if place is not None else ""
    except psycopg.Error as exc:
        # Nothing of this batch was done, and all of those before it: from here the user may try again.
        error, place = database_problem(exc).detail, after
    request.app.state.live_updates.notify()
    fields = {
        "act": act.value,
        **confirmation.fields,
        **wanted.filters(),
        "ids": str(form.get("ids") or "") if error else "",
        "reason": str(form.get("reason") or ""),
        "rate": f"{rate:g}" if rate else "",
        "force": str(form.get("force") or ""),
        "after": after,
        "so_far": json.dumps(so_far),
    }
    template = "bulk_action/progress.html" if request.headers.get("hx-request") else "bulk_action.html"
    is_done = not error and place is None
    return render(request, template, act=act, so_far=so_far, fields=fields, is_done=is_done, error=error, search=wanted)


def _options(form: FormData, act: BulkAction, so_far: Counter[str]) -> tuple[float | None, dict[str, Any]]:
    """Return how to act: messages that come after others of the same redrive wait for those."""
    if act is BulkAction.CANCEL:
        return None, {"reason": str(form.get("reason") or "").strip()[:MAX_REASON_CHARS] or None}
    if act is not BulkAction.REDRIVE:
        return None, {}
    rate = parse_rate(str(form.get("rate") or ""))
    return rate, {"rate": rate, "delay": bulk_actions.batch_delay(so_far, rate), "force": bool(form.get("force"))}


def _act(text: Any) -> BulkAction:
    try:
        return BulkAction(str(text))
    except ValueError:
        raise Problem(422, f"act is none of {', '.join(BulkAction)}", "invalid_act") from None


def _ids(texts: list[str]) -> list[int]:
    words = [word for text in texts for word in text.split(",") if word]
    if len(words) > MAX_SELECTED:
        raise Problem(422, f"{len(words):,} messages are selected, {MAX_SELECTED} is the most", "too_many")
    return [parse_id(word) for word in words]


def _texts(form: FormData) -> dict[str, str]:
    return {name: value for name, value in form.items() if isinstance(value, str)}
