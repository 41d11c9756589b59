"""Tokens and sessions as the web server knows them: asked of the database, remembered for two seconds.

A secret is never kept: the database has its SHA-256, and so has the memory here.

What was wrong too often from one address is not looked up any more, so that guesses do not reach the database. What was right before always is:
who is known does not suffer from others behind the same proxy; and so is one unknown secret now and then, lest a new one be locked out.
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
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from pgrouse.web.tokens import digest, is_well_formed
from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import WAIT_S, Database
from pgrouse.web.problem import Problem, unavailable

T = TypeVar("T")
Slot = tuple[str, bytes]

# A revoked token is good for so long at most.
REMEMBER_S = 2.0
MOST_REMEMBERED = 10_000
QUERIES = {
    "check_token": b"SELECT name, roles, topics FROM messages.check_token(%s)",
    "check_session": b"SELECT name, roles, topics FROM messages.check_session(%s)",
}
# As `secrets.token_urlsafe(32)` makes them.
COOKIE = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
# So many wrong tokens and cookies from one address in so many seconds, then it must wait.
MOST_WRONG = 20
WRONG_WITHIN_S = 60.0
# From all such addresses together one in so many seconds is looked up all the same, and so long is the line for that.
SPARED_S = 0.1
SPARED_WITHIN_S = 2.0
# So many secrets that were never right are looked up at the same time.
MOST_STRANGERS = 4
# Who has an IPv6 address has all that begin like it.
IPV6_PREFIX = 64


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who is logged in.

    Attributes:
        caller: who he is.
        csrf: what each of his forms must bring.
    """

    caller: Caller
    csrf: str


class Keyring:
    """What one web server knows of tokens.

    Args:
        db: where they are.
        session: how long somebody stays logged in.
    """

    def __init__(self, db: Database, session: timedelta) -> None:
        self.db, self.session = db, session
        self.local_csrf = secrets.token_urlsafe(24)
        self._known: OrderedDict[Slot, tuple[float, Caller | None]] = OrderedDict()
        self._asking: dict[Slot, asyncio.Task[Any]] = {}
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()
        self._right: OrderedDict[Slot, None] = OrderedDict()
        self._strangers = asyncio.Semaphore(MOST_STRANGERS)
        self._spared_at = 0.0
        self._has_tokens: tuple[float, bool] = (0.0, False)

    async def by_token(self, secret: str, address: str) -> Caller | None:
        """Return whose token it is; None: nobody's.

        Raises:
            Problem: 429, if too many wrong ones came from this address.
        """
        slot = ("check_token", digest(secret))
        return await self._by(slot, address, is_possible=is_well_formed(secret))

    async def by_session(self, cookie: str, address: str) -> Session | None:
        """Return who is logged in with this cookie.

        Raises:
            Problem: 429, as by_token.
        """
        caller = await self._by(
            ("check_session", digest(cookie)), address, is_possible=COOKIE.fullmatch(cookie) is not None
        )
        return None if caller is None else Session(caller, csrf_of(cookie))

    async def _by(self, slot: Slot, address: str, *, is_possible: bool) -> Caller | None:
        """Return whose secret it is, and count the wrong ones."""
        if slot in self._right:
            caller = await self._look_up(*slot)
        else:
            caller = await self._by_stranger(slot, _place(address), is_possible=is_possible)
        if caller is None:
            self._right.pop(slot, None)
        else:
            self._note_right(slot)
        return caller

    async def _by_stranger(self, slot: Slot, place: str, *, is_possible: bool) -> Caller | None:
        """As _by, of a secret that was never right. Few at once: those behind see what became of those before."""
        async with self._stranger():
            if len(self._recent(place)) < MOST_WRONG:
                caller = await self._look_up(*slot) if is_possible else None
                if caller is None:
                    self._note_wrong(place)
                return caller
        await self._spared()
        caller = await self._look_up(*slot) if is_possible else None
        if caller is None:
            self._note_wrong(place)
            raise too_many_wrong()
        return caller

    @asynccontextmanager
    async def _stranger(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(WAIT_S):
                await self._strangers.acquire()
        except TimeoutError:
            raise unavailable() from None
        try:
            yield
        finally:
            self._strangers.release()

    async def _spared(self) -> None:
        """Wait for the next turn of those who come from where too many wrong ones came; refuse if the line is too long."""
        now = time.monotonic()
        turn = max(now, self._spared_at)
        if turn - now > SPARED_WITHIN_S:
            raise too_many_wrong()
        self._spared_at = turn + SPARED_S
        await asyncio.sleep(turn - now)

    async def has_tokens(self) -> bool:
        """Say whether a token was ever made: from then on nobody comes in without one."""
        until, found = self._has_tokens
        if found or time.monotonic() < until:
            return found
        return await self._once(("has_tokens", b""), self._ask_for_tokens)

    async def _ask_for_tokens(self) -> bool:
        async with self.db.connection() as conn:
            row = await (await conn.execute(b"SELECT EXISTS (SELECT FROM messages.token) AS found")).fetchone()
        self._has_tokens = (time.monotonic() + REMEMBER_S, bool(row and row["found"]))
        return self._has_tokens[1]

    async def open_session(self, secret: str, address: str) -> str | None:
        """Change a token into a session; return the cookie, None if the token is nobody's."""
        if await self.by_token(secret, address) is None:
            return None
        cookie = secrets.token_urlsafe(32)
        async with self.db.connection() as conn:
            row = await (
                await conn.execute(
                    b"SELECT messages.open_session(%s, %s, %s) AS opened",
                    [digest(secret), digest(cookie), self.session],
                )
            ).fetchone()
        if not row or not row["opened"]:
            return None
        self._note_right(("check_session", digest(cookie)))
        return cookie

    async def close_session(self, cookie: str) -> None:
        """End a session."""
        async with self.db.connection() as conn:
            await conn.execute(b"SELECT messages.close_session(%s)", [digest(cookie)])
        slot = ("check_session", digest(cookie))
        self._known.pop(slot, None)
        self._right.pop(slot, None)

    async def _look_up(self, function: str, key: bytes) -> Caller | None:
        now = time.monotonic()
        until, caller = self._known.get((function, key), (0.0, None))
        if now < until:
            return caller
        return await self._once((function, key), lambda: self._ask(function, key))

    async def _ask(self, function: str, key: bytes) -> Caller | None:
        async with self.db.connection() as conn:
            row = await (await conn.execute(QUERIES[function], [key])).fetchone()
        caller = _caller(row)
        self._known[function, key] = (time.monotonic() + REMEMBER_S, caller)
        self._known.move_to_end((function, key))
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return caller

    async def _once(self, slot: Slot, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what is asked, one time for all who want to know it now. Whoever gives up takes nothing from the others."""
        task: asyncio.Task[T] | None = self._asking.get(slot)
        if task is None:
            task = asyncio.create_task(ask(), name="keyring")
            self._asking[slot] = task
            task.add_done_callback(lambda done: self._asked(slot, done))
        return await asyncio.shield(task)

    def _asked(self, slot: Slot, done: asyncio.Task[Any]) -> None:
        del self._asking[slot]
        if not done.cancelled():
            done.exception()  # seen, also if nobody waits any more

    def _recent(self, place: str) -> list[float]:
        since = time.monotonic() - WRONG_WITHIN_S
        return [at for at in self._wrong.get(place, []) if at > since]

    def _note_wrong(self, place: str) -> None:
        self._wrong[place] = [*self._recent(place), time.monotonic()][-MOST_WRONG:]
        self._wrong.move_to_end(place)
        while len(self._wrong) > MOST_REMEMBERED:
            self._wrong.popitem(last=False)

    def _note_right(self, slot: Slot) -> None:
        self._right[slot] = None
        self._right.move_to_end(slot)
        while len(self._right) > MOST_REMEMBERED:
            self._right.popitem(last=False)


def _place(address: str) -> str:
    """Return where an address is, as far as its owner cannot choose it."""
    try:
        place = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if place.version == 4:  # noqa: PLR2004
        return str(place)
    return str(place.ipv4_mapped or ipaddress.ip_network((int(place), IPV6_PREFIX), strict=False))


def too_many_wrong() -> Problem:
    """Return the problem of who has tried too many."""
    wait = {"Retry-After": str(round(WRONG_WITHIN_S))}
    return Problem(429, "too many wrong tokens or sessions from this address: wait a minute", "too_many_wrong", wait)


def csrf_of(cookie: str) -> str:
    """Return what forms of a session must bring: made of the cookie, so that nothing has to be kept, and not to be undone."""
    return hmac.new(cookie.encode(), b"csrf", hashlib.sha256).hexdigest()


def _caller(row: dict[str, Any] | None) -> Caller | None:
    if row is None or row["name"] is None:
        return None
    return Caller(row["name"], frozenset(Role(role) for role in row["roles"]), tuple(row["topics"]))
