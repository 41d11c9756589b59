"""Messages: a list with filters, and what can be done to many of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Annotated, Any

import psycopg
from fastapi import APIRouter, Depends, Request
from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from pgrouse.web import search

from pgrouse.web import bulk_actions as many
from pgrouse.web.caller import Caller, Role
from pgrouse.web.security import needs
from pgrouse.web.bulk_actions import Act
from pgrouse.web.page import render
from pgrouse.web.problem import Problem, of_database
from pgrouse.web.rate import rate_of
from pgrouse.web.search import Found, Search

router = APIRouter(include_in_schema=False)

PAGE = 50
PREVIEW = 160
# So far back leads the link to the page before; farther back only to the first.
MOST_BACK = 15
MOST_CHOSEN = 500

STATES = [
    ("", "All"),
    ("running", "Running"),
    ("ready", "Ready"),
    ("delayed", "Delayed"),
    ("retrying", "Retrying"),
    ("success", "Success"),
    ("dead", "Dead"),
    ("cancelled", "Cancelled"),
]
Viewer = Annotated[Caller, Depends(needs(Role.VIEWER))]
Operator = Annotated[Caller, Depends(needs(Role.OPERATOR))]


@router.get("/messages")
async def messages(request: Request, caller: Viewer) -> Response:
    """Show a page of the messages that fit the filters of the address."""
    params = request.query_params
    if params.get("id", "").strip():
        return RedirectResponse(f"/messages/{_id(params['id'])}", 303)
    wanted = Search.of(params)
    after, back = params.get("after", ""), params.getlist("back")
    fault, found = "", Found([], None, 0, None)
    try:
        arguments = wanted.arguments(caller)
        async with request.app.state.db.read() as conn:
            found = await search.find(conn, arguments, limit=PAGE, preview=PREVIEW, after=search.place_of(after))
    except Problem as problem:
        # The filters stay, so that they can be mended.
        fault = problem.detail
    return _list(request, wanted, found, after, back, fault)


def _list(request: Request, wanted: Search, found: Found, after: str, back: list[str], fault: str) -> Response:
    place = json.dumps(found.place, separators=(",", ":")) if found.place is not None else ""
    trail = [*back, after or "-"][-MOST_BACK:]
    shown = render(
        request,
        "messages.html",
        search=wanted,
        found=found,
        fault=fault,
        states=STATES,
        acts=[act for act in Act if many.narrowed({"states": wanted.states if not fault else None}, act)["states"]],
        is_first=not after,
        next=f"/messages?{wanted.query(after=place, back=trail)}" if place else None,
        before=_before(wanted, after, back),
        tab=lambda state: "/messages?" + Search(**{**wanted.given(), "state": state}).query(),
    )
    shown.status_code = 422 if fault else 200
    return shown


def _before(wanted: Search, after: str, back: list[str]) -> str | None:
    if not after:
        return None
    *trail, place = back or ["-"]
    return f"/messages?{wanted.query(after='' if place == '-' else place, back=trail)}"


@router.get("/messages/preview")
async def preview(request: Request, caller: Operator) -> Response:
    """Say how many messages an action would be done to, and ask."""
    params = request.query_params
    act, ids, wanted = _act(params.get("act")), _ids(params.getlist("chosen")), Search.of(params)
    async with request.app.state.db.read() as conn:
        consent = await many.now(conn)
        if ids:
            seen = many.preview_of(await many.chosen(conn, caller, act, ids))
        elif "chosen" in params or "selected" in params:
            raise Problem(422, "nothing is selected: select some messages first", "nothing_selected")
        else:
            seen = await many.preview(conn, consent.narrow(many.narrowed(wanted.arguments(caller), act)))
    consent = replace(consent, most=None if seen.at_least else seen.count)
    fields = {"act": act.value, **consent.fields, **wanted.given(), "ids": ",".join(map(str, ids))}
    return render(request, "preview.html", act=act, preview=seen, fields=fields, search=wanted, chosen=bool(ids))


@router.post("/messages/many")
async def act_on_many(request: Request, caller: Operator) -> Response:
    """Do the next batch, and say how far it is."""
    form = await request.form()
    act, ids, wanted = _act(form.get("act")), _ids([str(form.get("ids") or "")]), Search.of(_texts(form))
    so_far, after, fault = many.counted(str(form.get("so_far") or "")), str(form.get("after") or ""), ""
    rate, how = _how(form, act, so_far)
    consent = many.Consent.selected(len(ids)) if ids else many.Consent.of(_texts(form))
    try:
        async with request.app.state.db.write(caller, many.BATCH_TIME) as conn:
            if ids:
                batch, place = [row["id"] for row in await many.chosen(conn, caller, act, ids)], None
                missed = len(ids) - len(batch)
            else:
                arguments = consent.narrow(many.narrowed(wanted.arguments(caller), act))
                most = consent.left(so_far)
                found = await search.find(conn, arguments, limit=max(1, most), after=search.place_of(after))
                batch = [each for each in found.ids if each <= consent.highest][:most]
                place, missed = found.place, 0
            did = await many.do(conn, act, batch, **how)
        so_far += did + Counter(gone=missed)
        place = place if consent.left(so_far) else None
        after = json.dumps(place) if place is not None else ""
    except psycopg.Error as error:
        # Nothing of this batch was done, and all of those before it: from here somebody may try again.
        fault, place = of_database(error).detail, after
    request.app.state.hub.poke()
    fields = {
        "act": act.value,
        **consent.fields,
        **wanted.given(),
        "ids": str(form.get("ids") or "") if fault else "",
        "reason": str(form.get("reason") or ""),
        "rate": f"{rate:g}" if rate else "",
        "force": str(form.get("force") or ""),
        "after": after,
        "so_far": json.dumps(so_far),
    }
    template = "progress_of_many.html" if request.headers.get("hx-request") else "many.html"
    is_done = not fault and place is None
    return render(request, template, act=act, so_far=so_far, fields=fields, is_done=is_done, fault=fault, search=wanted)


def _how(form: FormData, act: Act, so_far: Counter[str]) -> tuple[float | None, dict[str, Any]]:
    """Return how to act: messages that come after others of the same redrive wait for those."""
    if act is Act.CANCEL:
        return None, {"reason": str(form.get("reason") or "").strip()[:LONGEST_REASON] or None}
    if act is Act.RETRY:
        return None, {}
    rate = rate_of(str(form.get("rate") or ""))
    return rate, {"rate": rate, "delay": many.delay(so_far, rate), "force": bool(form.get("force"))}


LONGEST_REASON = 1000
LONGEST_ID = 20  # one digit more than any id has


def _act(text: Any) -> Act:
    try:
        return Act(str(text))
    except ValueError:
        raise Problem(422, f"act is none of {', '.join(Act)}", "invalid_act") from None


def _ids(texts: list[str]) -> list[int]:
    words = [word for text in texts for word in text.split(",") if word]
    if len(words) > MOST_CHOSEN:
        raise Problem(422, f"{len(words):,} messages are selected, {MOST_CHOSEN} is the most", "too_many")
    return [_id(word) for word in words]


def _id(text: str) -> int:
    digits = text.strip()
    # Python converts no number of thousands of digits.
    number = digits.lstrip("0")[:LONGEST_ID] or "0"
    if not digits.isascii() or not digits.isdecimal() or int(number) >= 2**63:
        raise Problem(422, f"{text[:50]!r} is no id of a message: it is a number", "invalid_id")
    return int(number)


def _texts(form: FormData) -> dict[str, str]:
    return {name: value for name, value in form.items() if isinstance(value, str)}
