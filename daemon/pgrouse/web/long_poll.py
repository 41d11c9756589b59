"""Who waits for messages over HTTP: one connection listens for all of them, one look a second asks for all of them.

It is armed as a daemon is, so that a publish rings; what rings was missed costs one look. Nothing runs while nobody waits.
Whoever is woken claims in turn: a few at once, and not at all if somebody has found the topics empty since.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import islice
from secrets import token_hex

import psycopg
import structlog

from pgrouse import events
from pgrouse.client.database import close
from pgrouse.config.dsn import redact
from pgrouse.web.database_pool import Database
from pgrouse.web.problem import Problem

log = structlog.get_logger()

LOOK_S = 1.0
MOST_WAITING = 1000
# Each look asks for every topic that is waited for: so many of all callers together, and of one of them.
MOST_TOPICS = 2000
MOST_TOPICS_OF_ONE = 200
READY = b"""
    SELECT t.topic FROM pg_catalog.unnest(%s::pg_catalog.text[]) AS t (topic)
    WHERE messages.next_due(ARRAY[t.topic]) OPERATOR(pg_catalog.<=) '0'"""


class Waiter:
    """One request that waits.

    Attributes:
        topics: what it wants.
        rung: set when one of them may have something.
    """

    def __init__(self, topics: list[str]) -> None:
        self.topics = frozenset(topics)
        self.rung = asyncio.Event()


class Wanted:
    """The topics that are waited for, each with how many requests wait for it.

    Args:
        most: how many there may be.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._counts: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def topics(self) -> list[str]:
        """Return them in their order."""
        return sorted(self._counts)

    def has_room(self, topics: frozenset[str]) -> bool:
        """Say whether these may be waited for too."""
        return len(self._counts.keys() | topics) <= self.most

    def add(self, topics: frozenset[str]) -> None:
        """Let one more request wait."""
        self._counts.update(topics)

    def remove(self, topics: frozenset[str]) -> None:
        """Let one of them wait no more."""
        self._counts.subtract(topics)
        for topic in topics:
            if not self._counts[topic]:
                del self._counts[topic]


class Wake:
    """Wakes the requests of one web server that wait for messages.

    Args:
        db: the pool, and how to connect.
        pool_size: how many connections it has; those who were woken use half of them.

    Attributes:
        looks: how often was looked what is there.
    """

    def __init__(self, db: Database, pool_size: int) -> None:
        self.db = db
        self.name = f"web:{socket.gethostname()}:{os.getpid()}:{token_hex(2)}"
        self.looks = 0
        self._at_once = max(1, pool_size // 2)
        self._turns = asyncio.Semaphore(self._at_once)
        self._waiters: dict[Waiter, None] = {}  # who has waited longest first
        self._wanted = Wanted(MOST_TOPICS)
        self._wanted_by: dict[str, Wanted] = {}
        # What the last look found, without what a claim found empty since.
        self._ready: set[str] = set()
        self._is_away = False
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def waiting(self, caller: str, topics: list[str]) -> AsyncIterator[Waiter]:
        """Enter a request of a caller that waits for these topics.

        Raises:
            Problem: 503, too many wait, or for too many topics.
        """
        waiter = Waiter(topics)
        of_one = self._wanted_by.get(caller, Wanted(MOST_TOPICS_OF_ONE))
        self._check_room(waiter.topics, of_one)
        self._wanted_by[caller] = of_one
        self._waiters[waiter] = None
        self._wanted.add(waiter.topics)
        of_one.add(waiter.topics)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="wake")
        try:
            yield waiter
        finally:
            del self._waiters[waiter]
            self._wanted.remove(waiter.topics)
            of_one.remove(waiter.topics)
            if not of_one:
                self._wanted_by.pop(caller, None)

    def _check_room(self, topics: frozenset[str], of_one: Wanted) -> None:
        if len(self._waiters) >= MOST_WAITING:
            raise _too_many("too many requests wait for messages: try again")
        if not of_one.has_room(topics):
            raise _too_many(f"requests of one token may wait for {MOST_TOPICS_OF_ONE} topics together: ask for fewer")
        if not self._wanted.has_room(topics):
            raise _too_many(f"requests may wait for {MOST_TOPICS:,} topics together: try again")

    @asynccontextmanager
    async def turn(self, until: float) -> AsyncIterator[bool]:
        """Let a request claim when it is its turn; False: it was not, until then (by time.monotonic)."""
        try:
            async with asyncio.timeout(max(0, until - time.monotonic())):
                await self._turns.acquire()
        except TimeoutError:
            yield False
            return
        try:
            yield True
        finally:
            self._turns.release()

    def may_have(self, waiter: Waiter) -> bool:
        """Say whether there may still be something for a request that was woken."""
        return not waiter.topics.isdisjoint(self._ready)

    def found(self, topics: Iterable[str], waiter: Waiter | None) -> None:
        """Note of which topics a claim got messages: there may be more, also for who came in vain meanwhile."""
        self._ready.update(topics)
        others = (each for each in self._waiters if each is not waiter and self.may_have(each))
        for each in islice(others, self._at_once):
            each.rung.set()

    def found_nothing(self, topics: Iterable[str], looks: int) -> None:
        """Note that a claim, begun after so many looks, found nothing: nobody who was woken by the last one needs to try again."""
        if looks == self.looks:
            self._ready.difference_update(topics)

    def ring_all(self) -> None:
        """Let every request look now: something may have come, or the server stops."""
        for waiter in self._waiters:
            waiter.rung.set()

    async def close(self) -> None:
        """End the task."""
        self.ring_all()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        """Listen and look while somebody waits. A database that is away is tried again with every look."""
        while self._waiters:
            try:
                conn = await self.db.connecting.connect_listener("new_message")
            except (psycopg.Error, TimeoutError) as error:
                self._tell(error)
                await asyncio.sleep(LOOK_S)
                continue
            try:
                await self._serve(conn)
            except psycopg.Error as error:
                self._tell(error)
                await asyncio.sleep(LOOK_S)
            finally:
                await close(conn)

    async def _serve(self, conn: psycopg.AsyncConnection) -> None:
        try:
            while self._waiters:
                # Which message it was is not asked: the look finds out, once for all that have rung.
                await self._look()
                async for _ in conn.notifies(timeout=LOOK_S, stop_after=1):
                    pass
                async for _ in conn.notifies(timeout=0):
                    pass
        finally:
            with suppress(psycopg.Error):
                async with self.db.connection() as pooled:
                    await pooled.execute(b"SELECT messages.worker_stopped(%s)", [self.name])

    async def _look(self) -> None:
        """Say until when rings are wanted, and wake those for whom something is there."""
        topics = self._wanted.topics()
        try:
            async with self.db.connection() as conn:
                await conn.execute(
                    b"SELECT messages.arm(%s, %s, pg_catalog.make_interval(secs => %s))", [self.name, topics, LOOK_S]
                )
                found = {row["topic"] for row in await (await conn.execute(READY, [topics])).fetchall()}
        except psycopg.Error as error:
            self._tell(error)
            return
        self._is_away = False
        # At one moment: a claim that began before it knows nothing of what this look has found.
        self._ready, self.looks = found, self.looks + 1
        for waiter in self._waiters:
            if self.may_have(waiter):
                waiter.rung.set()

    def _tell(self, error: psycopg.Error | TimeoutError) -> None:
        """Log why nobody is woken: loudly when it begins."""
        say = log.debug if self._is_away else log.warning
        say(events.WEB_DATABASE_AWAY, reason=redact(" ".join(str(error).split())))
        self._is_away = True


def _too_many(detail: str) -> Problem:
    return Problem(503, detail, "too_many_waiting", {"Retry-After": "1"})
