"""The gate that every request passes: which host it names, where it comes from, how large it is, who asks and what he may do."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import psycopg
from fastapi import Request
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from pgrouse.config.config import Config
from pgrouse.web.caller import LOCAL, Caller, Role
from pgrouse.web.credentials import Session, Token, credentials_of
from pgrouse.web.token_cache import Keyring
from pgrouse.web.token_cache import Session as Login
from pgrouse.web.listen_socket import is_loopback
from pgrouse.web.problem import Problem, problem_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SAFE = ("GET", "HEAD", "OPTIONS")
# Where nobody has to be known, and how much may be sent there.
OPEN = ("/login", "/logout")
OPEN_BYTES = 16_384
LONGEST_NUMBER = 16
MOST_HEADERS = 200
# A name or an address, and a port: what else stands there would be read as part of the path where an address is made of it.
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)?(:[0-9]{0,5})?", re.ASCII)
# A request whose body takes longer is given up.
BODY_S = 30.0

SECURITY = {
    # Everything from here, no inline script, no inline style.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": browsers then send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Gate:
    """The outermost part of the app (ASGI): refuses what must not come in, and marks what goes out.

    Args:
        app: what lies behind it.
        settings: section `web`.
        doorkeeper: knows who asks.
    """

    def __init__(self, app: App, settings: Config, doorkeeper: Doorkeeper) -> None:
        self.app, self.doorkeeper = app, doorkeeper
        self.max_body_bytes = settings.web.max_body_bytes
        self.names = {"localhost", socket.gethostname().lower(), _host_of(settings.web.listen)}
        self.names |= {name.lower() for name in settings.web.allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
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
            await problem_of(error).response()(scope, receive, _marked(send))
            return
        await self.app(scope, Body(receive, limit), _marked(send))

    async def _check(self, request: Request) -> int:
        """Refuse what must not come in; return how many bytes its body may have."""
        headers = request.headers
        _check_form(headers)
        await self._check_host(request)
        if request.method not in SAFE and not _is_same_origin(headers.get("host", ""), headers):
            raise Problem(403, "the request comes from another site", "other_origin")
        limit = self.max_body_bytes if _is_empty(headers) else await self._limit(request)
        if int(headers.get("content-length", "0")) > limit:
            raise too_large(limit)
        return limit

    async def _check_host(self, request: Request) -> None:
        """Refuse names that are not ours, but for those who prove that they are not pages led here by such a name: they hold a token.

        It goes by what the doorkeeper identifies by, so that nobody is exempt here and the local user there.
        """
        if self._is_ours(request.headers.get("host", "")):
            return
        if not isinstance(self.doorkeeper.credentials(request), Token):
            raise Problem(421, "this host is not served here: add its name to web.allowed_hosts", "unknown_host")
        await self.doorkeeper.identify(request)

    async def _limit(self, request: Request) -> int:
        """Return how much somebody may send: before it is known who he is, next to nothing is read."""
        if request.scope["path"] in OPEN:
            return OPEN_BYTES
        await self.doorkeeper.identify(request)
        return self.max_body_bytes

    def _is_ours(self, host: str) -> bool:
        name = _host_of(host)
        if name in self.names or "*" in self.names or _is_address(name):
            return True
        return any(f"*.{parent}" in self.names for parent in _parents(name))


class Body:
    """What a request brings, counted, and not for ever."""

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
            # The framework lets only its own kind of error through here.
            raise HTTPException(413, too_large(self._limit).detail)
        return message


def too_large(limit: int) -> Problem:
    """Return the problem of a body beyond the limit."""
    return Problem(413, f"the request may have {limit:,} bytes (web.max_body_bytes): send it in parts", "too_large")


# What decides who asks, and how much he sends: said twice, one place could read the first and another the last.
SINGLE = {
    *("host", "origin", "authorization", "content-length", "content-type"),
    *("sec-fetch-site", "x-csrf-token", "idempotency-key"),
}


def _check_form(headers: Headers) -> None:
    """Refuse headers that could be read in two ways."""
    names = headers.keys()
    if len(names) > MOST_HEADERS:
        raise Problem(431, f"the request has {len(names)} headers, {MOST_HEADERS} is the most", "too_many_headers")
    if len(set(names)) < len(names) and (twice := SINGLE & {name for name in names if names.count(name) > 1}):
        raise Problem(400, f"the header {min(twice)} is there twice", "bad_request")
    if not HOST.fullmatch(headers.get("host", "")):
        raise Problem(421, "the header Host is no name and port", "unknown_host")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal() and len(length) < LONGEST_NUMBER):
        raise Problem(400, "Content-Length is no number", "bad_request")


def _is_empty(headers: Headers) -> bool:
    return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers


RAW = [(name.encode(), value.encode()) for name, value in SECURITY.items()]


def _marked(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message["headers"], *RAW]
            if not any(name == b"cache-control" for name, _ in message["headers"]):
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers
        await send(message)

    return sending


def _host_of(host: str) -> str:
    """Return the name in `name:port`; an IPv6 address without its brackets."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    """Say whether it is an address: nobody can make a browser take a name for one, so it needs no list."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _parents(name: str) -> list[str]:
    labels = name.split(".")
    return [".".join(labels[n:]) for n in range(1, len(labels))]


def _is_same_origin(host: str, headers: Headers) -> bool:
    """Say whether a request that changes something was not sent by another site's page. Programs send neither header."""
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False


class Doorkeeper:
    """Knows who asks.

    Args:
        settings: section `web`.
        keyring: what knows tokens and sessions.
    """

    def __init__(self, settings: Config, keyring: Keyring) -> None:
        self.keyring = keyring
        # Behind a proxy the peer is always the proxy: nobody is local then.
        self.trusts_loopback = is_loopback(settings.web.listen) and not settings.web.proxies

    async def caller(self, request: Request) -> Caller:
        """Return who asks, and make sure that a browser's form is ours.

        Raises:
            Problem: 401, 403 (a forged form), 429 (too many wrong tokens).
        """
        caller = await self.identify(request)
        if request.method not in SAFE and request.state.session is not None:
            await _check_csrf(request, request.state.session)
        return caller

    async def identify(self, request: Request) -> Caller:
        """Return who asks; once a request. Sets `request.state.csrf`, what forms of his must bring back.

        Raises:
            Problem: 401, 429.
        """
        state = request.state
        if getattr(state, "identified", None) is None:
            state.csrf, state.session = "", None
            state.identified = await self._identify(request)
        caller: Caller = state.identified
        return caller

    def credentials(self, request: Request) -> Token | Session | None:
        """Return what the request shows of who asks; read once, so that no two places see different things."""
        state = request.state
        if not hasattr(state, "credentials"):
            state.credentials = credentials_of(request)
        shown: Token | Session | None = state.credentials
        return shown

    async def _identify(self, request: Request) -> Caller:
        match self.credentials(request):
            case Token(secret):
                return await self._by_token(request, secret)
            case Session(cookie):
                return await self._by_session(request, cookie)
        if self._is_local(request) and not await self.keyring.has_tokens():
            request.state.csrf = self.keyring.local_csrf
            return LOCAL
        raise unauthenticated("a token is needed: send `Authorization: Bearer …`")

    async def _by_token(self, request: Request, secret: str) -> Caller:
        caller = await self.keyring.by_token(secret, peer(request))
        if caller is None:
            raise unauthenticated("the token is unknown, expired or revoked")
        return caller

    async def _by_session(self, request: Request, cookie: str) -> Caller:
        session = await self.keyring.by_session(cookie, peer(request))
        if session is None:
            raise unauthenticated("the session has ended: log in again")
        request.state.csrf, request.state.session = session.csrf, session
        return session.caller

    def _is_local(self, request: Request) -> bool:
        return self.trusts_loopback and not any(_is_of_a_proxy(name) for name in request.headers)


def _is_of_a_proxy(name: str) -> bool:
    return name in ("forwarded", "via", "x-real-ip") or name.startswith("x-forwarded-")


def peer(request: Request) -> str:
    """Return the address that asks."""
    return request.client.host if request.client else "?"


def unauthenticated(detail: str) -> Problem:
    """Return the problem of who is not known."""
    return Problem(401, detail, "unauthenticated", {"WWW-Authenticate": 'Bearer realm="pgrouse"'})


async def _check_csrf(request: Request, session: Login) -> None:
    given = request.headers.get("x-csrf-token")
    if given is None and "form" in request.headers.get("content-type", ""):
        given = str((await request.form()).get("csrf", ""))
    if not hmac.compare_digest((given or "").encode(), session.csrf.encode()):
        raise Problem(403, "the form is too old, or not ours: load the page again", "csrf")


class Needs:
    """The dependency of a route: who asks, if he has the role. Topics are the route's own to check, by `allow`."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, request: Request) -> Caller:
        """Return the caller.

        Raises:
            Problem: 401 nobody known, 403 without the role.
        """
        caller: Caller = await request.app.state.doorkeeper.caller(request)
        request.state.caller = caller
        if not caller.has(self.role):
            raise Problem(403, f"{caller.name} is no {self.role}", "forbidden", needs=self.role.value)
        return caller


@lru_cache
def needs(role: Role) -> Needs:
    """Return the dependency that lets in who has a role: `caller: Annotated[Caller, Depends(needs(Role.VIEWER))]`."""
    return Needs(role)


def allow(caller: Caller, role: Role, topic: str | None = None) -> None:
    """Refuse what the caller may not do with a topic; None: with what belongs to all of them.

    Raises:
        Problem: 403.
    """
    if not caller.may(role, topic):
        what = "all topics" if topic is None else f"topic {topic}"
        raise Problem(403, f"{caller.name} is no {role} of {what}", "forbidden", needs=role.value)
