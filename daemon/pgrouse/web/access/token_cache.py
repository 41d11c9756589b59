"""Tokens and sessions as the web server knows them: asked of the database, remembered for two seconds.

A secret is never kept: the database has its SHA-256, and so has the memory here.

What was wrong too often from one address is not looked up any more, so that guesses do not reach the database. What was
right before always is: who is known does not suffer from others behind the same proxy; and so is one unknown secret now
and then, lest a new one be locked out.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from pgrouse.client.call import run_async
from pgrouse.client.calls import web
from pgrouse.client.queries.token import has_tokens
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import WAIT_S, DatabasePool
from pgrouse.web.access.tokens import digest, is_well_formed
from pgrouse.web.http.problem import Problem, unavailable

T = TypeVar("T")
CacheKey = tuple[str, bytes]

# A revoked token is good for so long at most.
CACHE_S = 2.0
MAX_CACHED = 10_000
CHECKS = {"check_token": web.check_token, "check_session": web.check_session}
# As `secrets.token_urlsafe(32)` makes them.
COOKIE = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
# The maximum number of wrong tokens and cookies from one address in a period; then it must wait.
MAX_FAILURES = 20
FAILURE_WINDOW_S = 60.0
# For all such addresses together one look-up per interval is made all the same, from a queue of limited length.
THROTTLE_S = 0.1
MAX_THROTTLE_WAIT_S = 2.0
# The maximum number of unknown secrets that are looked up at the same time.
MAX_UNKNOWN_AT_ONCE = 4
SERVER_ERROR = 500
# A client with an IPv6 address has all addresses with the same beginning.
IPV6_PREFIX = 64


@dataclass(frozen=True, slots=True)
class LoginSession:
    """Somebody who is logged in.

    Attributes:
        caller: who he is.
        csrf: what each of his forms must bring.
    """

    caller: Caller
    csrf: str


class TokenCache:
    """What one web server knows of tokens.

    Args:
        db: where they are.
        session_ttl: how long a login lasts.
    """

    def __init__(self, db: DatabasePool, session_ttl: timedelta) -> None:
        self.db, self.session_ttl = db, session_ttl
        self.local_csrf = secrets.token_urlsafe(24)
        self._cached: OrderedDict[CacheKey, tuple[float, Caller | None]] = OrderedDict()
        self._pending: dict[CacheKey, asyncio.Task[Any]] = {}
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._verified: OrderedDict[CacheKey, None] = OrderedDict()
        self._unknown_slots = asyncio.Semaphore(MAX_UNKNOWN_AT_ONCE)
        self._next_throttled_at = 0.0
        self._has_tokens: tuple[float, bool] = (0.0, False)

    async def by_token(self, secret: str, address: str) -> Caller | None:
        """Return the caller of a token; None: the token is not valid.

        Raises:
            Problem: 429, if too many wrong ones came from this address.
        """
        cache_key = ("check_token", digest(secret))
        return await self._authenticate(cache_key, address, is_possible=is_well_formed(secret))

    async def by_session(self, cookie: str, address: str) -> LoginSession | None:
        """Return who is logged in with this cookie.

        Raises:
            Problem: 429, as by_token.
        """
        caller = await self._authenticate(
            ("check_session", digest(cookie)), address, is_possible=COOKIE.fullmatch(cookie) is not None
        )
        return None if caller is None else LoginSession(caller, csrf_token(cookie))

    async def _authenticate(self, cache_key: CacheKey, address: str, *, is_possible: bool) -> Caller | None:
        """Return whose secret it is, and count the wrong ones."""
        if cache_key in self._verified:
            caller = await self._look_up(*cache_key)
        else:
            caller = await self._authenticate_unknown(cache_key, _network(address), is_possible=is_possible)
        if caller is None:
            self._verified.pop(cache_key, None)
        else:
            self._record_success(cache_key)
        return caller

    async def _authenticate_unknown(self, cache_key: CacheKey, network: str, *, is_possible: bool) -> Caller | None:
        """As _authenticate, of a secret that was never right.

        Few at once: those behind see what became of those before.
        """
        async with self._unknown_slot():
            if len(self._recent_failures(network)) < MAX_FAILURES:
                caller = await self._look_up(*cache_key) if is_possible else None
                if caller is None:
                    self._record_failure(network)
                return caller
        await self._throttle()
        caller = await self._look_up(*cache_key) if is_possible else None
        if caller is None:
            self._record_failure(network)
            raise too_many_failures()
        return caller

    async def check_url(self, address: str, check: Callable[[], Awaitable[str]]) -> str:
        """Return what a signed URL is worth. Wrong ones count, and are limited, as wrong tokens.

        Args:
            address: the client's.
            check: asks the database; it returns `invalid` for a wrong one.
        """
        network = _network(address)
        if len(self._recent_failures(network)) >= MAX_FAILURES:
            await self._throttle()
        async with self._unknown_slot():
            worth = await check()
        if worth == "invalid":
            self._record_failure(network)
        return worth

    async def limit_failures(self, address: str, log_in: Callable[[], Awaitable[T]]) -> T:
        """Return what a login by a provider returns. Refused ones count, and are limited, as wrong tokens."""
        network = _network(address)
        if len(self._recent_failures(network)) >= MAX_FAILURES:
            await self._throttle()
        try:
            return await log_in()
        except Problem as problem:
            if problem.status < SERVER_ERROR:
                self._record_failure(network)
            raise

    @asynccontextmanager
    async def _unknown_slot(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(WAIT_S):
                await self._unknown_slots.acquire()
        except TimeoutError:
            raise unavailable() from None
        try:
            yield
        finally:
            self._unknown_slots.release()

    async def _throttle(self) -> None:
        """Wait for the next turn of those who come from where too many wrong ones came.

        Refuse if the line is too long.
        """
        now = time.monotonic()
        turn = max(now, self._next_throttled_at)
        if turn - now > MAX_THROTTLE_WAIT_S:
            raise too_many_failures()
        self._next_throttled_at = turn + THROTTLE_S
        await asyncio.sleep(turn - now)

    async def has_tokens(self) -> bool:
        """Return whether a token was ever created: from then on every request needs one."""
        until, found = self._has_tokens
        if found or time.monotonic() < until:
            return found
        return await self._deduplicate(("has_tokens", b""), self._query_has_tokens)

    async def _query_has_tokens(self) -> bool:
        async with self.db.connection() as conn:
            found = await run_async(conn, has_tokens())
        self._has_tokens = (time.monotonic() + CACHE_S, found)
        return found

    async def open_session(self, secret: str, address: str) -> str | None:
        """Exchange a token for a session; return the cookie, or None if the token is not valid."""
        if await self.by_token(secret, address) is None:
            return None
        cookie = secrets.token_urlsafe(32)
        async with self.db.connection() as conn:
            is_opened = await run_async(conn, web.open_session(digest(secret), digest(cookie), self.session_ttl))
        if not is_opened:
            return None
        self._record_success(("check_session", digest(cookie)))
        return cookie

    async def open_user_session(self, user: Caller) -> str:
        """Open a session of a user whom a provider has identified; return the cookie."""
        cookie = secrets.token_urlsafe(32)
        roles, topics = [role.value for role in user.roles], list(user.topics)
        async with self.db.write(user) as conn:
            await run_async(conn, web.open_user_session(user.name, digest(cookie), roles, topics, self.session_ttl))
        self._record_success(("check_session", digest(cookie)))
        return cookie

    async def close_session(self, cookie: str) -> None:
        """End a session."""
        async with self.db.connection() as conn:
            await run_async(conn, web.close_session(digest(cookie)))
        cache_key = ("check_session", digest(cookie))
        self._cached.pop(cache_key, None)
        self._verified.pop(cache_key, None)

    async def _look_up(self, function: str, key: bytes) -> Caller | None:
        now = time.monotonic()
        until, caller = self._cached.get((function, key), (0.0, None))
        if now < until:
            return caller
        return await self._deduplicate((function, key), lambda: self._query(function, key))

    async def _query(self, function: str, key: bytes) -> Caller | None:
        async with self.db.connection() as conn:
            caller = _caller(await run_async(conn, CHECKS[function](key)))
        self._cached[function, key] = (time.monotonic() + CACHE_S, caller)
        self._cached.move_to_end((function, key))
        while len(self._cached) > MAX_CACHED:
            self._cached.popitem(last=False)
        return caller

    async def _deduplicate(self, cache_key: CacheKey, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what is asked, one time for all who want to know it now.

        Anyone who gives up takes nothing from the others.
        """
        task: asyncio.Task[T] | None = self._pending.get(cache_key)
        if task is None:
            task = asyncio.create_task(ask(), name="token_cache")
            self._pending[cache_key] = task
            task.add_done_callback(lambda done: self._on_done(cache_key, done))
        return await asyncio.shield(task)

    def _on_done(self, cache_key: CacheKey, done: asyncio.Task[Any]) -> None:
        del self._pending[cache_key]
        if not done.cancelled():
            done.exception()  # marked as retrieved, even if no request waits any more

    def _recent_failures(self, network: str) -> list[float]:
        since = time.monotonic() - FAILURE_WINDOW_S
        return [at for at in self._failures.get(network, []) if at > since]

    def _record_failure(self, network: str) -> None:
        self._failures[network] = [*self._recent_failures(network), time.monotonic()][-MAX_FAILURES:]
        self._failures.move_to_end(network)
        while len(self._failures) > MAX_CACHED:
            self._failures.popitem(last=False)

    def _record_success(self, cache_key: CacheKey) -> None:
        self._verified[cache_key] = None
        self._verified.move_to_end(cache_key)
        while len(self._verified) > MAX_CACHED:
            self._verified.popitem(last=False)


def _network(address: str) -> str:
    """Return where an address is, as far as its owner cannot choose it."""
    try:
        network = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if network.version == 4:  # noqa: PLR2004
        return str(network)
    return str(network.ipv4_mapped or ipaddress.ip_network((int(network), IPV6_PREFIX), strict=False))


def too_many_failures() -> Problem:
    """Return the problem of who has tried too many."""
    wait = {"Retry-After": str(round(FAILURE_WINDOW_S))}
    return Problem(429, "too many wrong tokens or sessions from this address: wait a minute", "too_many_failures", wait)


def csrf_token(cookie: str) -> str:
    """Return what forms of a session must bring.

    It is made of the cookie, so that nothing has to be kept, and it cannot be undone.
    """
    return hmac.new(cookie.encode(), b"csrf", hashlib.sha256).hexdigest()


def _caller(holder: web.TokenHolder | None) -> Caller | None:
    if holder is None:
        return None
    return Caller(holder.name, frozenset(Role(role) for role in holder.roles), tuple(holder.topics))
