"""The checks of every request: its host, origin, size, caller and permissions."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlsplit

import psycopg
from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pgrouse.config.config import Config
from pgrouse.web.access.caller import LOCAL, Caller, Role
from pgrouse.web.access.listen_socket import is_loopback
from pgrouse.web.access.redaction import Redactor
from pgrouse.web.access.token_cache import LoginSession, TokenCache
from pgrouse.web.http.base_path import base_path, route_path, with_base_in_headers
from pgrouse.web.http.problem import Problem, to_problem

COOKIE = "pgrouse_session"


@dataclass(frozen=True, slots=True)
class BearerToken:
    """An `Authorization` header; the secret is empty if the header has none."""

    secret: str


@dataclass(frozen=True, slots=True)
class SessionCookie:
    """The cookie of a session."""

    cookie: str


def read_credentials(request: Request) -> BearerToken | SessionCookie | None:
    """Return the credentials of a request; None if it has none."""
    if "authorization" in request.headers:
        return BearerToken(_secret(request.headers["authorization"]))
    return SessionCookie(request.cookies[COOKIE]) if COOKIE in request.cookies else None


def _secret(authorization: str) -> str:
    """Return the token of the header: Bearer, or the password of Basic."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Answer = Callable[[Request, Problem], Response]

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# Paths that need no authentication, and the limit of their bodies.
PUBLIC_PATHS = ("/login", "/logout")
# A signed URL is its own credential.
SIGNED_PREFIX = "/signal/"
PUBLIC_MAX_BYTES = 16_384
# Probes and scrapes come by the name of a service, or by none. A probe tells only whether the server works; metrics
# name topics.
PROBE_PATHS = ("/livez", "/readyz")
METRICS_PATH = "/metrics"
MAX_NUMBER_DIGITS = 16
MAX_HEADERS = 200
# A form that cannot be taken now says why on its page. What another site may have sent is answered with as little as
# possible.
ANSWERED = (413, 429, 503)
# A name or an address, and a port. Anything else could be read as part of a path when a URL is built from it.
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)?(:[0-9]{0,5})?", re.ASCII)
# A body that takes longer to arrive is rejected.
BODY_S = 30.0

SECURITY_HEADERS = {
    # Only resources of this server, no inline scripts or styles.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # "no-referrer" is not used: browsers would send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityMiddleware:
    """The outermost ASGI middleware: rejects unsafe requests, and adds security headers to responses.

    Args:
        app: the application behind it.
        settings: section `web`.
        authenticator: identifies the caller.
        answer: makes the answer to a request that cannot be served now, and that is not suspicious: browsers get a
            page.
    """

    def __init__(self, app: AsgiApp, settings: Config, authenticator: Authenticator, answer: Answer) -> None:
        self.app, self.authenticator, self.answer = app, authenticator, answer
        self.max_body_bytes = settings.web.max_body_bytes
        self.allowed_hosts = {"localhost", socket.gethostname().lower(), _host_of(settings.web.listen)}
        self.allowed_hosts |= {name.lower() for name in settings.web.allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            limit = await self._check(request)
        except (Problem, psycopg.Error) as error:
            problem = to_problem(error)
            response = self.answer(request, problem) if problem.status in ANSWERED else problem.response()
            await response(scope, receive, _with_security_headers(scope, send))
            return
        await self.app(scope, LimitedBody(receive, limit), _with_security_headers(scope, send))

    async def _check(self, request: Request) -> int:
        """Reject an unsafe request; return how many bytes its body may have."""
        headers = request.headers
        _check_headers(headers)
        await self._check_host(request)
        if request.method not in SAFE_METHODS and not _is_same_origin(headers.get("host", ""), headers):
            raise Problem(403, "the request comes from another site", "other_origin")
        limit = self.max_body_bytes if _is_empty(headers) else await self._limit(request)
        if int(headers.get("content-length", "0")) > limit:
            raise too_large_problem(limit)
        return limit

    async def _check_host(self, request: Request) -> None:
        """Reject unknown host names (DNS rebinding), unless a token identifies the caller.

        No browser adds a token by itself.

        A header alone exempts no request: the application around this one may identify its caller by something else.
        """
        if _needs_no_host(request) or self._is_allowed_host(request.headers.get("host", "")):
            return
        if isinstance(self.authenticator.credentials(request), BearerToken):
            await self.authenticator.identify(request)
            if request.state.is_by_token:
                return
        raise Problem(421, "unknown host: add its name to web.allowed_hosts, or send a token", "unknown_host")

    async def _limit(self, request: Request) -> int:
        """Return the limit of the body; before the caller is identified it is small."""
        path = route_path(request.scope)
        if path in PUBLIC_PATHS or path.startswith(SIGNED_PREFIX):
            return PUBLIC_MAX_BYTES
        await self.authenticator.identify(request)
        return self.max_body_bytes

    def _is_allowed_host(self, host: str) -> bool:
        name = _host_of(host)
        if name in self.allowed_hosts or "*" in self.allowed_hosts or _is_address(name):
            return True
        return any(f"*.{parent}" in self.allowed_hosts for parent in _parents(name))


class LimitedBody:
    """The body of a request, limited in size and time."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._limit = receive, limit
        self._bytes, self._is_whole, self._until = 0, False, 0.0

    async def __call__(self) -> Message:
        """Return the next part."""
        if self._is_whole:
            return await self._receive()
        now = asyncio.get_running_loop().time()
        self._until = self._until or now + BODY_S
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, f"the request did not arrive within {BODY_S:g} s") from None
        self._bytes += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._bytes > self._limit:
            # FastAPI lets only its own exceptions through here.
            raise HTTPException(413, too_large_problem(self._limit).detail)
        return message


def too_large_problem(limit: int) -> Problem:
    """Return the problem of a body beyond the limit."""
    return Problem(413, f"the request may have {limit:,} bytes (web.max_body_bytes): send it in parts", "too_large")


# Headers that decide about identity and size. If one were repeated, two readers could see different values.
SINGLE_HEADERS = {
    *("host", "origin", "authorization", "content-length", "content-type"),
    *("sec-fetch-site", "x-csrf-token", "idempotency-key"),
}


def _check_headers(headers: Headers) -> None:
    """Reject ambiguous headers."""
    names = headers.keys()
    if len(names) > MAX_HEADERS:
        raise Problem(431, f"the request has {len(names)} headers, {MAX_HEADERS} is the most", "too_many_headers")
    if len(set(names)) < len(names) and (twice := SINGLE_HEADERS & {name for name in names if names.count(name) > 1}):
        raise Problem(400, f"the header {min(twice)} is repeated", "bad_request")
    if not HOST.fullmatch(headers.get("host", "")):
        raise Problem(421, "the header Host is not a name and port", "unknown_host")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal() and len(length) < MAX_NUMBER_DIGITS):
        raise Problem(400, "Content-Length is not a number", "bad_request")


def _is_empty(headers: Headers) -> bool:
    return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers


RAW_SECURITY_HEADERS = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


def _with_security_headers(scope: Scope, send: Send) -> Send:
    base = base_path(scope)

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*with_base_in_headers(message["headers"], base), *RAW_SECURITY_HEADERS]
            if not any(name == b"cache-control" for name, _ in message["headers"]):
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers
        await send(message)

    return sending


def _needs_no_host(request: Request) -> bool:
    """Return whether a request is answered whatever its host is called.

    These are probes, and scrapes by programs that name none, as no browser does.
    """
    path = route_path(request.scope)
    return path in PROBE_PATHS or (path == METRICS_PATH and not request.headers.get("host"))


def _host_of(host: str) -> str:
    """Return the name in `name:port`; an IPv6 address without its brackets."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    """Return whether it is an IP address: DNS rebinding needs a name, so addresses need no list."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _parents(name: str) -> list[str]:
    labels = name.split(".")
    return [".".join(labels[n:]) for n in range(1, len(labels))]


def _is_same_origin(host: str, headers: Headers) -> bool:
    """Return whether a request was not sent by a page of another site. Programs send neither header."""
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False


# Where a mounted application keeps the scope of the one around it, whose `request.state` is not ours.
OUTER_SCOPE = "pgrouse.outer_scope"
# A function of the application around this one: whom it knows the sender of a request to be.
Authenticate = Callable[[Request], Caller | Awaitable[Caller | None] | None]


class Authenticator:
    """Identifies the caller of a request.

    Args:
        settings: section `web`.
        token_cache: looks up tokens and sessions.
        authenticate: says whom an application around this one knows the caller to be, before any credentials are looked
            at.
        trusts_loopback: whether `web.listen` tells who can send requests.
        redactor: decides which contents of messages callers see.
    """

    def __init__(
        self,
        settings: Config,
        token_cache: TokenCache,
        authenticate: Authenticate | None = None,
        *,
        trusts_loopback: bool = True,
        redactor: Redactor | None = None,
    ) -> None:
        self.token_cache, self.authenticate, self.redactor = token_cache, authenticate, redactor
        # Behind a proxy every request comes from the proxy: no caller is local then.
        self.trusts_loopback = trusts_loopback and is_loopback(settings.web.listen) and not settings.web.proxies

    async def caller(self, request: Request) -> Caller:
        """Return the caller, and check the CSRF token of a browser's form.

        Raises:
            Problem: 401, 403 (a forged form), 429 (too many wrong tokens).
        """
        caller = await self.identify(request)
        if request.method not in SAFE_METHODS and request.state.session is not None:
            await _check_csrf(request, request.state.session)
        return caller

    async def identify(self, request: Request) -> Caller:
        """Return the caller, once per request.

        Sets `request.state.csrf`, the CSRF token for the caller's forms; `session`, if a session identifies it; and
        `is_by_token`.

        Raises:
            Problem: 401, 429.
        """
        state = request.state
        if getattr(state, "identified", None) is None:
            state.csrf, state.session, state.is_by_token = "", None, False
            state.identified = replace(await self._identify(request), redactor=self.redactor)
        caller: Caller = state.identified
        return caller

    def credentials(self, request: Request) -> BearerToken | SessionCookie | None:
        """Return the credentials of the request; read once, so that all checks see the same."""
        state = request.state
        if not hasattr(state, "credentials"):
            state.credentials = read_credentials(request)
        shown: BearerToken | SessionCookie | None = state.credentials
        return shown

    async def _identify(self, request: Request) -> Caller:
        if (known := await self._by_application(request)) is not None:
            request.state.csrf = self.token_cache.local_csrf
            return known
        match self.credentials(request):
            case BearerToken(secret):
                return await self._by_token(request, secret)
            case SessionCookie(cookie):
                return await self._by_session(request, cookie)
        if self._is_local(request) and not await self.token_cache.has_tokens():
            request.state.csrf = self.token_cache.local_csrf
            return LOCAL
        raise unauthenticated_problem("a token is needed: send `Authorization: Bearer …`")

    async def _by_application(self, request: Request) -> Caller | None:
        if self.authenticate is None:
            return None
        found = self.authenticate(Request(request.scope.get(OUTER_SCOPE, request.scope)))
        return await found if isinstance(found, Awaitable) else found

    async def _by_token(self, request: Request, secret: str) -> Caller:
        caller = await self.token_cache.by_token(secret, client_address(request))
        if caller is None:
            raise unauthenticated_problem("the token is unknown, expired or revoked")
        request.state.is_by_token = True
        return caller

    async def _by_session(self, request: Request, cookie: str) -> Caller:
        session = await self.token_cache.by_session(cookie, client_address(request))
        if session is None:
            raise unauthenticated_problem("the session has ended: log in again")
        request.state.csrf, request.state.session = session.csrf, session
        return session.caller

    def _is_local(self, request: Request) -> bool:
        return self.trusts_loopback and not any(_is_proxy_header(name) for name in request.headers)


def _is_proxy_header(name: str) -> bool:
    return name in ("forwarded", "via", "x-real-ip") or name.startswith("x-forwarded-")


def client_address(request: Request) -> str:
    """Return the address of the client."""
    return request.client.host if request.client else "?"


def unauthenticated_problem(detail: str) -> Problem:
    """Return the problem of a caller that is not authenticated."""
    return Problem(401, detail, "unauthenticated", {"WWW-Authenticate": 'Bearer realm="pgrouse"'})


async def _check_csrf(request: Request, session: LoginSession) -> None:
    given = request.headers.get("x-csrf-token")
    if given is None and "form" in request.headers.get("content-type", ""):
        given = str((await request.form()).get("csrf", ""))
    if not hmac.compare_digest((given or "").encode(), session.csrf.encode()):
        raise Problem(403, "the form has expired or is forged: reload the page", "csrf")


class RequireRole:
    """A route dependency that returns the caller if it has the role, for the `{topic}` of the path if there is one.

    Routes check all other topics with `check_permission`.
    """

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, request: Request) -> Caller:
        """Return the caller.

        Raises:
            Problem: 401 not authenticated, 403 without the role.
        """
        caller: Caller = await request.app.state.authenticator.caller(request)
        request.state.caller = caller
        if not caller.has(self.role):
            raise Problem(403, f"{caller.name} does not have the role {self.role}", "forbidden", needs=self.role.value)
        if "topic" in request.path_params:
            check_permission(caller, self.role, request.path_params["topic"])
        return caller


async def identify(request: Request) -> None:
    """Find out who the caller is, if that is possible: then a page that anyone may see has its navigation."""
    if not hasattr(request.state, "caller"):
        with suppress(Problem, psycopg.Error, OSError, TimeoutError):
            request.state.caller = await request.app.state.authenticator.caller(request)


# The caller of a route that requires a role.
Viewer = Annotated[Caller, Depends(RequireRole(Role.VIEWER))]
Publisher = Annotated[Caller, Depends(RequireRole(Role.PUBLISHER))]
Worker = Annotated[Caller, Depends(RequireRole(Role.WORKER))]
Operator = Annotated[Caller, Depends(RequireRole(Role.OPERATOR))]


def check_permission(caller: Caller, role: Role, topic: str | None = None) -> None:
    """Check that the caller has a role for a topic; None, or `*`: for all topics.

    Raises:
        Problem: 403.
    """
    if not caller.may(role, topic):
        what = "all topics" if topic in (None, "*") else f"topic {topic}"
        raise Problem(403, f"{caller.name} does not have the role {role} for {what}", "forbidden", needs=role.value)
