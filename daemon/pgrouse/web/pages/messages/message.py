"""Message: all that is known of one, and what can be done to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import psycopg
from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from pgrouse.client.call import Call, run_async
from pgrouse.client.calls import dead, event, operate
from pgrouse.client.queries.message import read_message
from pgrouse.errors import InvalidMessage
from pgrouse.values import jsonb
from pgrouse.web.access import fan_out, redaction
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, Row, reading, run_read, run_write, writing
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.http.problem import Problem, database_problem
from pgrouse.web.page import message_detail, view
from pgrouse.web.page.json_view import pretty
from pgrouse.web.page.page import render
from pgrouse.web.page.view import View

router = APIRouter()

Reason = Annotated[str, Form(max_length=1000)]

# The text for each result of an action, as the query string of the page names it.
RESULT_TEXTS = {
    "retried": "It is due now.",
    "signalled": "It has got the event.",
    "cancelled": "It is cancelled.",
    "skipped": "It is skipped: archived as failed, so that those behind it can run.",
    "edited": "It is edited.",
    "redriven": "It is redriven as the message below.",
    "too_late": "Nothing was done: its state has changed. This is the current state.",
    "running": "Nothing was done: it is running with the old payload.",
    "changed": "Nothing was done: another user has edited it in the meantime.",
    "redacted": "It cannot be edited here, because web.redact hides a part of it.",
    "superseded": "It stays dead: a newer message with its key waits.",
    "too_often": "It stays dead: it has reached max_redrives. Tick “ignore max_redrives” to redrive it anyway.",
    "too_large": "It stays dead: the text of its payload or headers is too large. Edit it to redrive it.",
    "redriven_before": "It was redriven before.",
}
SUCCEEDED = ("retried", "signalled", "cancelled", "skipped", "edited", "redriven")


async def read_context(conn: Connection, caller: Caller, subject: str) -> dict[str, Any]:
    """Read a message and everything that its page shows."""
    row = await _read(conn, caller, _id(subject))
    around = await message_detail.read_context(conn, row["id"])
    around["reasons"] = [
        each for each in around["reasons"] if fan_out.may_see_reason(caller, each["code"], each["detail_json"])
    ]
    around["steps"] = [message_detail.step(caller, row["topic"], each) for each in around["steps"]]
    around["logs"] = [message_detail.log(caller, row["topic"], each) for each in around["logs"]]
    around["lineage"] = [each for each in around["lineage"] if each["topic"] is None or caller.sees(each["topic"])]
    around["neighbours"] = [
        each for each in around["neighbours"] if each["topic"] is None or caller.sees(each["topic"])
    ]
    return {
        "message": row,
        "events": message_detail.timeline(row),
        "progress": message_detail.progress(row["progress"]),
        "waits_for": _event(around["reasons"]),
        "can": message_detail.allowed_actions(row, is_allowed=caller.may(Role.OPERATOR, row["topic"])),
        **around,
    }


def _event(reasons: list[Row]) -> str:
    """Return the event that the message waits for; empty: none."""
    found = next((each["detail_json"] for each in reasons if each["code"] == "waiting_for_event"), None)
    return str(json.loads(found)["event"]) if found else ""


async def _read(conn: Connection, caller: Caller, message_id: int) -> Row:
    row = await message_detail.read(conn, message_id)
    if row is None or not caller.sees(row["topic"]):
        raise Problem(
            404,
            f"there is no message {message_id}: it was never published, or was deleted from the archive",
            "not_found",
        )
    return redaction.shown_message(caller, fan_out.hide_copies(caller, row))


def _id(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text[:25]) >= 2**63:
        raise Problem(404, "there is no such message: an id is a number", "not_found")
    return int(text)


VIEW = View("messages/message", read_context, parts=("head", "now"))


@router.get("/messages/{message_id}")
async def message(request: Request, caller: Viewer, message_id: str) -> Response:
    """Show the message."""
    result = request.query_params.get("result", "")
    async with reading(request) as conn:
        context = await read_context(conn, caller, message_id)
    return render(
        request,
        "messages/message/page.html",
        **context,
        contents=message_detail.contents(context["message"]),
        result=RESULT_TEXTS.get(result),
        result_kind="good" if result in SUCCEEDED else "warn",
        live_url=VIEW.live_url(message_id),
    )


@router.get("/messages/{message_id}/payload")
async def download(request: Request, caller: Viewer, message_id: str) -> Response:
    """Send the whole payload as a file."""
    row = await run_read(request, read_message(_id(message_id)))
    if row is None or not caller.sees(row["topic"]) or (row["payload"] is None and row["body"] is None):
        raise Problem(404, f"message {message_id} has no payload, or there is none", "not_found")
    is_json = row["payload"] is not None
    row = redaction.shown_message(caller, row)
    content = row["payload"].encode() if is_json else bytes(row["body"])
    name = f"message-{_id(message_id)}.{'json' if is_json else 'bin'}"
    return Response(
        content,
        # As a file in any case: nothing that was published is ever shown as a page of the dashboard.
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@router.post("/messages/{message_id}/retry")
async def retry(request: Request, caller: Operator, message_id: str) -> Response:
    """Let it be tried at once."""
    return await _act(request, caller, message_id, "retried", operate.retry_now)


@router.post("/messages/{message_id}/signal")
async def signal(
    request: Request,
    caller: Operator,
    message_id: str,
    name: Annotated[str, Form(max_length=1000)],
    payload: Annotated[str, Form(max_length=message_detail.MAX_EDIT_CHARS)] = "",
) -> Response:
    """Give it the event for which its handler waits, or will wait."""
    try:
        given = _json(payload, "payload") if payload.strip() else None
    except InvalidMessage as refused:
        raise Problem(422, str(refused), "invalid") from None
    async with writing(request, caller) as conn:
        row = await _read(conn, caller, _id(message_id))
        check_permission(caller, Role.OPERATOR, row["topic"])
        found = await run_async(conn, event.signal(row["id"], name, given))
    return await _back(request, row["id"], "too_late" if found is None else "signalled")


@router.post("/messages/{message_id}/cancel")
async def cancel(request: Request, caller: Operator, message_id: str, reason: Reason = "") -> Response:
    """End it."""
    return await _act(request, caller, message_id, "cancelled", partial(operate.cancel, reason=reason.strip() or None))


@router.post("/messages/{message_id}/skip")
async def skip(request: Request, caller: Operator, message_id: str, reason: Reason = "") -> Response:
    """Take it out of the way of those behind it."""
    return await _act(request, caller, message_id, "skipped", partial(operate.skip, reason=reason.strip() or None))


async def _act(
    request: Request, caller: Caller, message_id: str, result: str, action: Callable[[list[int]], Call[list[int]]]
) -> Response:
    async with writing(request, caller) as conn:
        row = await _read(conn, caller, _id(message_id))
        check_permission(caller, Role.OPERATOR, row["topic"])
        changed = await run_async(conn, action([row["id"]]))
    return await _back(request, row["id"], result if changed else "too_late")


@router.post("/messages/{message_id}/redrive")
async def redrive(request: Request, caller: Operator, message_id: str, force: Annotated[str, Form()] = "") -> Response:
    """Put it back as it was."""
    async with writing(request, caller) as conn:
        row = await _read(conn, caller, _id(message_id))
        check_permission(caller, Role.OPERATOR, row["topic"])
        done = await run_async(conn, dead.redrive([row["id"]], force=bool(force)))
    return await _after_redrive(request, row["id"], done)


@router.get("/messages/{message_id}/edit")
async def edit_form(request: Request, caller: Operator, message_id: str) -> Response:
    """Show payload and headers to be edited."""
    async with reading(request) as conn:
        row = await _read(conn, caller, _id(message_id))
        check_permission(caller, Role.OPERATOR, row["topic"])
        if row["is_redacted"]:
            return await _back(request, row["id"], "redacted")
        allowed = message_detail.allowed_actions(row)
        if not allowed["edit"] and not allowed["redrive_edited"]:
            return await _back(request, row["id"], "too_late")
        content = await run_async(conn, read_message(row["id"]))
    payload = pretty_for_editing(None if content is None else content["payload"])
    headers = pretty_for_editing(row["headers"])
    return _form(request, row, payload, headers, row["payload_md5"] or row["body_md5"])


def pretty_for_editing(text: str | None) -> str:
    """Lay JSON out to be edited: what looks harmless in it is written as an escape, which means the same."""
    return "" if text is None else pretty(text, 10 * message_detail.MAX_EDIT_CHARS)[0]


def _form(request: Request, row: Row, payload: str, headers: str, seen: str | None, error: str = "") -> Response:
    shown = render(
        request,
        "messages/message/edit.html",
        message=row,
        payload=payload,
        headers=headers,
        seen=seen or "",
        error=error,
        is_dead=row["archived_at"] is not None,
    )
    shown.status_code = 422 if error else 200
    return shown


@router.post("/messages/{message_id}/edit")
async def edit(request: Request, caller: Operator, message_id: str) -> Response:
    """Put the new payload in place, or a dead message back with it."""
    form = await request.form()
    payload, headers = str(form.get("payload") or ""), str(form.get("headers") or "").strip()
    seen, force = str(form.get("seen") or ""), bool(form.get("force"))
    async with reading(request) as conn:
        row = await _read(conn, caller, _id(message_id))
    check_permission(caller, Role.OPERATOR, row["topic"])
    try:
        new_payload, new_headers = _edited(row, payload, headers)
        if row["archived_at"] is not None:
            call = dead.redrive_edited(row["id"], new_payload, new_headers, merge=False, force=force)
            return await _redrive_edited(request, caller, row, call)
        return await _save(request, caller, row, operate.edit(row["id"], new_payload, new_headers, seen or None))
    except InvalidMessage as refused:
        return _form(request, row, payload, headers, seen, str(refused))
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.RaiseException) as refused:
        return _form(request, row, payload, headers, seen, database_problem(refused).detail)


def _edited(row: Row, payload: str, headers: str) -> tuple[str | None, str | None]:
    """Return payload and headers as they were typed; None stays as it is.

    Raises:
        InvalidMessage: it is not JSON, or there is nothing.
    """
    keeps_bytes = row["body_bytes"] is not None and not payload.strip()
    if keeps_bytes and not headers:
        raise InvalidMessage("nothing was edited: type a payload, or headers")
    new_payload = None if keeps_bytes else _json(payload, "payload")
    return new_payload, _json(headers, "headers") if headers else None


def _json(text: str, where: str) -> str:
    """Return the JSON text, if PostgreSQL and every reader can take it; every digit of it stays."""
    # A form sends line ends as the network has them; inside of JSON strings there are none.
    return jsonb.encode(jsonb.Raw(text.replace("\r\n", "\n")), where)


async def _save(request: Request, caller: Caller, row: Row, call: Call[str]) -> Response:
    done = await run_write(request, caller, call)
    return await _back(request, row["id"], done if done in ("edited", "running", "changed") else "too_late")


async def _redrive_edited(request: Request, caller: Caller, row: Row, call: Call[list[dead.Redriven]]) -> Response:
    done = await run_write(request, caller, call)
    return await _after_redrive(request, row["id"], done)


async def _after_redrive(request: Request, message_id: int, done: list[dead.Redriven]) -> Response:
    outcome = done[0].outcome if done else "too_late"
    result = "redriven" if outcome in ("redriven", "keyless") else outcome if outcome in RESULT_TEXTS else "too_late"
    return await _back(request, message_id, result)


async def _back(request: Request, message_id: int, result: str) -> Response:
    return await view.redirect(request, f"/messages/{message_id}?result={result}")
