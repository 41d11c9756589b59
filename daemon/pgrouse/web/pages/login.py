"""Log in with a token, and log out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from pgrouse.web.access import security
from pgrouse.web.access.security import COOKIE, SessionCookie
from pgrouse.web.http.base_path import base_path
from pgrouse.web.page.page import render

router = APIRouter()


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
    """Change a token into a session cookie. Another site cannot do it: the security middleware rejects its Origin."""
    token_cache = request.app.state.token_cache
    cookie = await token_cache.open_session(token.strip(), security.client_address(request))
    if cookie is None:
        shown = render(request, "login.html", next=_inside(next), wrong=True)
        shown.status_code = 401
        return shown
    answer = RedirectResponse(_inside(next), status_code=303)
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=round(token_cache.session_ttl.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path=base_path(request.scope) or "/",
    )
    return answer


@router.post("/logout")
async def log_out(request: Request) -> Response:
    """End the session. A forged request cannot: the cookie is not sent with it, nor has it the csrf."""
    authenticator = request.app.state.authenticator
    if isinstance(shown := authenticator.credentials(request), SessionCookie):
        await authenticator.caller(request)
        await request.app.state.token_cache.close_session(shown.cookie)
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(COOKIE, path=base_path(request.scope) or "/", httponly=True, samesite="strict")
    return answer


def _inside(path: str) -> str:
    """Return a path of this server: the login must not redirect to another site."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours else "/"
