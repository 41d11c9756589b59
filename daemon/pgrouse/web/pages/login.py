"""Log in with a token or by a provider of OpenID Connect, and log out."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from pgrouse.web.access import security
from pgrouse.web.access.oidc import CALLBACK, OidcLogin
from pgrouse.web.access.security import COOKIE, SessionCookie
from pgrouse.web.http.base_path import base_path
from pgrouse.web.http.problem import Problem
from pgrouse.web.page.page import render

router = APIRouter()

BEGIN = "/login/oidc"
# Kept while the user is at the provider: the secret of the login, and where it leads.
LOGIN_COOKIE = "pgrouse_login"
LOGIN_MAX_AGE_S = 600
MAX_NEXT = 2000
MAX_KEPT = 3000
WRONG_TOKEN = "This token is unknown, expired or revoked."  # noqa: S105 - a sentence


@router.get("/login")
async def show_login(request: Request, next: str = "/") -> Response:  # noqa: A002 - the word in the address
    """Show the form."""
    return _form(request, next)


@router.post("/login")
async def log_in(
    request: Request,
    token: Annotated[str, Form(max_length=200)] = "",
    next: Annotated[str, Form(max_length=MAX_NEXT)] = "/",  # noqa: A002
) -> Response:
    """Change a token into a session cookie. Another site cannot do it: the security middleware rejects its Origin."""
    token_cache = request.app.state.token_cache
    cookie = await token_cache.open_session(token.strip(), security.client_address(request))
    if cookie is None:
        return _form(request, next, 401, wrong=WRONG_TOKEN)
    answer = RedirectResponse(_inside(next), status_code=303)
    _set_session(request, answer, cookie)
    return answer


@router.get(BEGIN)
async def begin_oidc(request: Request, next: str = "/") -> Response:  # noqa: A002
    """Lead to the provider. Another site may do so too: its answer changes nothing in a browser that did not ask."""
    try:
        url, secret = await _oidc(request).begin()
    except Problem as problem:
        return _form(request, next, problem.status, refused=problem.detail)
    answer = RedirectResponse(url, status_code=303)
    kept = base64.urlsafe_b64encode(_inside(next).encode()).decode()
    answer.set_cookie(
        LOGIN_COOKIE,
        # Browsers keep no cookie of more than 4096 bytes.
        f"{secret}.{kept if len(kept) < MAX_KEPT else ''}",
        max_age=LOGIN_MAX_AGE_S,
        httponly=True,
        # The provider's site sends the browser back.
        samesite="lax",
        secure=_is_https(request),
        path=base_path(request.scope) + BEGIN,
    )
    return answer


@router.get(CALLBACK)
async def finish_oidc(request: Request) -> Response:
    """Open a session for the user whom the provider names, and go on to the page that was asked for."""
    secret, _, kept = request.cookies.get(LOGIN_COOKIE, "").partition(".")
    wanted = _decoded(kept)
    token_cache = request.app.state.token_cache
    oidc = _oidc(request)
    try:
        user = await token_cache.limit_failures(
            security.client_address(request), lambda: oidc.finish(secret, request.query_params)
        )
    except Problem as problem:
        answer = _form(request, wanted, problem.status, refused=problem.detail)
    else:
        answer = _go_on(request, wanted)
        _set_session(request, answer, await token_cache.open_user_session(user))
    answer.delete_cookie(LOGIN_COOKIE, path=base_path(request.scope) + BEGIN, httponly=True, samesite="lax")
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


def _form(request: Request, wanted: str, status: int = 200, *, wrong: str = "", refused: str = "") -> Response:
    """Return the page to log in, with the reason if it is shown again."""
    oidc: OidcLogin | None = request.app.state.oidc
    label = None if oidc is None else oidc.settings.label
    shown = render(request, "login/page.html", next=_inside(wanted), wrong=wrong, refused=refused, label=label)
    shown.status_code = status
    return shown


def _oidc(request: Request) -> OidcLogin:
    oidc: OidcLogin | None = request.app.state.oidc
    if oidc is None:
        raise Problem(404, "there is no [web.oidc] in the configuration of this server", "not_found")
    return oidc


def _set_session(request: Request, answer: Response, cookie: str) -> None:
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=round(request.app.state.token_cache.session_ttl.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=_is_https(request),
        path=base_path(request.scope) or "/",
    )


def _is_https(request: Request) -> bool:
    """Return whether browsers come by https. A login by a provider comes by `web.url`."""
    url = request.app.state.settings.web.url if request.url.path.endswith((BEGIN, CALLBACK)) else None
    return (url or str(request.url)).startswith("https:")


def _go_on(request: Request, wanted: str) -> Response:
    """Return a page that leads on.

    A redirect would be a part of the way from the provider's site, on which browsers do not send the session's cookie.
    """
    answer = render(request, "login/logged_in.html", next=_inside(wanted))
    answer.headers["refresh"] = f"0;url={base_path(request.scope)}{quote(_inside(wanted), safe='/?&=%:@!$*+,;~')}"
    return answer


def _decoded(kept: str) -> str:
    try:
        return base64.urlsafe_b64decode(kept).decode()
    except (binascii.Error, ValueError):
        return "/"


def _inside(path: str) -> str:
    """Return a path of this server: the login must not redirect to another site."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours else "/"
