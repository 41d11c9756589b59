"""Tokens and sessions as the web server knows them: asked of the database, remembered for two seconds.

A secret is never kept: the database has its SHA-256, and so has the memory here.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from pgrouse.secret import digest, is_well_formed
from pgrouse.web.caller import Caller, Role
from pgrouse.web.database import Database
from pgrouse.web.problem import Problem

T = TypeVar("T")
Slot = tuple[str, bytes]

# A revoked token is good for so long at most.
REMEMBER_S = 2.0
MOST_REMEMBERED = 10_000
QUERIES = {
    "check_token": b"SELECT name, roles, topics FROM messages.check_token(%s)",
    "check_session": b"SELECT name, roles, topics FROM messages.check_session(%s)",
}
# So many wrong tokens from one address in so many seconds, then it must wait.
MOST_WRONG = 20
WRONG_WITHIN_S = 60.0


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
        self._has_tokens: tuple[float, bool] = (0.0, False)

    async def by_token(self, secret: str, address: str) -> Caller | None:
        """Return whose token it is; None: nobody's.

        Raises:
            Problem: 429, if too many wrong ones came from this address.
        """
        if is_well_formed(secret):
            caller = await self._look_up("check_token", digest(secret))
            if caller is not None:
                return caller
        self._note_wrong(address)
        return None

    async def by_session(self, cookie: str) -> Session | None:
        """Return who is logged in with this cookie."""
        caller = await self._look_up("check_session", digest(cookie))
        return None if caller is None else Session(caller, csrf_of(cookie))

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
        return cookie if row and row["opened"] else None

    async def close_session(self, cookie: str) -> None:
        """End a session."""
        async with self.db.connection() as conn:
            await conn.execute(b"SELECT messages.close_session(%s)", [digest(cookie)])
        self._known.pop(("check_session", digest(cookie)), None)

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

    def _note_wrong(self, address: str) -> None:
        now = time.monotonic()
        recent = [at for at in self._wrong.get(address, []) if now - at < WRONG_WITHIN_S]
        self._wrong[address] = [*recent, now][-MOST_WRONG - 1 :]
        self._wrong.move_to_end(address)
        while len(self._wrong) > MOST_REMEMBERED:
            self._wrong.popitem(last=False)
        if len(recent) >= MOST_WRONG:
            wait = {"Retry-After": str(round(WRONG_WITHIN_S))}
            raise Problem(429, "too many wrong tokens from this address: wait a minute", "too_many_wrong", wait)


def csrf_of(cookie: str) -> str:
    """Return what forms of a session must bring: made of the cookie, so that nothing has to be kept, and not to be undone."""
    return hmac.new(cookie.encode(), b"csrf", hashlib.sha256).hexdigest()


def _caller(row: dict[str, Any] | None) -> Caller | None:
    if row is None or row["name"] is None:
        return None
    return Caller(row["name"], frozenset(Role(role) for role in row["roles"]), tuple(row["topics"]))
