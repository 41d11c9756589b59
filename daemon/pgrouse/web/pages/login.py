"""The door: a token becomes a session, and a session ends."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from pgrouse.web import security as gate
from pgrouse.web.credentials import COOKIE, Session
from pgrouse.web.page import render

router = APIRouter(include_in_schema=False)


@router.get("/login")
async def show_login(request: Request, next: str = "/") -> Response:  # noqa: A002 - the word in the address
    """Show the form."""
    return render(request, "login.html", next=_inside(next), wrong=False)


@router.post("/login")
async def log_in(
    request: Request,
    token: Annotated[str, Form(max_length=200)] = "",
    next: Annotated[str, Form(max_length=2000)] = "/",  # noqa: A002
) -> Response:
    """Change a token into a session cookie. Another site cannot do it: its Origin is refused at the gate."""
    keyring = request.app.state.keyring
    cookie = await keyring.open_session(token.strip(), gate.peer(request))
    if cookie is None:
        shown = render(request, "login.html", next=_inside(next), wrong=True)
        shown.status_code = 401
        return shown
    answer = RedirectResponse(_inside(next), status_code=303)
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=round(keyring.session.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/logout")
async def log_out(request: Request) -> Response:
    """End the session. A forged request cannot: the cookie is not sent with it, nor has it the csrf."""
    doorkeeper = request.app.state.doorkeeper
    if isinstance(shown := doorkeeper.credentials(request), Session):
        await doorkeeper.caller(request)
        await request.app.state.keyring.close_session(shown.cookie)
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def _inside(path: str) -> str:
    """Return a path of ours: a link to the door must not lead out of the house."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours else "/"
