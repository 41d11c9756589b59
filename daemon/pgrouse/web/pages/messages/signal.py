"""Signal: what a signed URL shows to a person, and does for a program."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from pgrouse.client.calls.event import check_signal, signal
from pgrouse.errors import InvalidMessage
from pgrouse.values import jsonb
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import run_read, run_write
from pgrouse.web.access.security import client_address
from pgrouse.web.http.problem import Problem
from pgrouse.web.page.page import render
from pgrouse.web.page.problem_answer import wants_page

router = APIRouter()

# The actor in the audit log: the URL names no person.
BY_URL = Caller("signed URL", frozenset())
# What a URL is worth: the status of the answer, and its text.
TEXTS = {
    "done": (200, "Done. You can close this page."),
    "valid": (200, ""),
    "used": (200, "This was done before, or its time is over. Nothing more is to be done."),
    "ended": (410, "This is no longer waited for: the message has ended."),
    "over": (410, "The time of this address is over: ask for another one."),
    "invalid": (403, "This address is not valid: it must be opened whole, as it was sent."),
}
MAX_ID = 2**63 - 1
Until = Annotated[int, Query(ge=1, le=MAX_ID)]
Number = Annotated[int, Query(ge=1, le=1000)]
Signature = Annotated[str, Query(max_length=200)]


@router.get("/signal/{message_id}/{name:path}")
async def show(
    request: Request, message_id: str, name: str, until: Until = 1, number: Number = 1, signature: Signature = ""
) -> Response:
    """Show a button. Programs that look at links in mails open this, so it does nothing."""
    return _answer(request, await _worth(request, message_id, name, until, number, signature), name)


@router.post("/signal/{message_id}/{name:path}")
async def use(
    request: Request, message_id: str, name: str, until: Until = 1, number: Number = 1, signature: Signature = ""
) -> Response:
    """Signal the event; a body of JSON is its payload. A repeated request changes nothing."""
    payload = await _payload(request)
    worth = await _worth(request, message_id, name, until, number, signature)
    if worth == "valid":
        # The number makes it count once, also beside another request.
        done = await run_write(request, BY_URL, signal(_id(message_id), name, payload, number))
        worth = "ended" if done is None else "done"
    return _answer(request, worth, name)


async def _worth(request: Request, message_id: str, name: str, until: int, number: int, signature: str) -> str:
    call = check_signal(_id(message_id), _plain(name), until, number, _plain(signature))
    worth: str = await request.app.state.token_cache.check_url(client_address(request), lambda: run_read(request, call))
    return worth


async def _payload(request: Request) -> str | None:
    if not request.headers.get("content-type", "").startswith("application/json"):
        return None
    try:
        return jsonb.encode(jsonb.Raw((await request.body()).decode()), "payload")
    except (InvalidMessage, UnicodeDecodeError) as error:
        raise Problem(422, f"the body is no JSON that can be kept: {error}", "invalid") from None


def _id(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < len(str(MAX_ID)) else 0


def _plain(text: str) -> str:
    """Return a text without what PostgreSQL cannot hold: no signature is right for such a text."""
    return text.replace("\x00", "\ufffd").encode(errors="replace").decode()


def _answer(request: Request, worth: str, name: str) -> Response:
    status, text = TEXTS[worth]
    if wants_page(request):
        shown = render(request, "messages/signal.html", name=name, text=text, may_signal=worth == "valid")
        shown.status_code = status
        return shown
    if status != 200:  # noqa: PLR2004
        raise Problem(status, text, worth)
    return JSONResponse({"state": worth})
