"""Long polling over HTTP.

One connection listens for all waiting requests, and one query a second checks for all of them.

It is armed like a daemon, so that a publish notifies it; a missed notification costs one check. Nothing runs while no
request waits. Woken requests claim a few at a time, and not at all if another one has found the topics empty since.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from itertools import islice
from secrets import token_hex

import psycopg

from pgrouse.client.call import run_async
from pgrouse.client.calls.processing.wake import arm, ready_topics
from pgrouse.client.calls.processing.worker import unregister_worker
from pgrouse.client.connection.listening import ListenConnection
from pgrouse.process import loop
from pgrouse.process.backoff import FailureLog
from pgrouse.values.topic_pattern import patterns_of
from pgrouse.web.access.database_pool import DatabasePool
from pgrouse.web.http.problem import Problem

CHECK_S = 1.0
# Requests that wait, for messages or for their turn to claim: of all callers together, and of one caller.
MAX_WAITING = 1000
MAX_WAITING_OF_CALLER = 250
# Each check asks for every waited topic: the limit of all callers together, and of one caller.
MAX_TOPICS = 2000
MAX_TOPICS_PER_CALLER = 200


class WaitingRequest:
    """One waiting request.

    Attributes:
        topics: its topics.
        woken: set when one of them may have messages.
    """

    def __init__(self, topics: list[str]) -> None:
        self.topics = frozenset(topics)
        self.woken = asyncio.Event()


class WaitedTopics:
    """The topics that requests wait for, with the number of requests for each.

    Args:
        most: the maximum number of topics.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._counts: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def topics(self) -> list[str]:
        """Return the topics in order."""
        return sorted(self._counts)

    def has_capacity(self, topics: frozenset[str]) -> bool:
        """Return whether these topics fit too."""
        return len(self._counts.keys() | topics) <= self.most

    def add(self, topics: frozenset[str]) -> None:
        """Add the topics of a request."""
        self._counts.update(topics)

    def remove(self, topics: frozenset[str]) -> None:
        """Remove the topics of a request."""
        self._counts.subtract(topics)
        for topic in topics:
            if not self._counts[topic]:
                del self._counts[topic]


class LongPoll:
    """Wakes the waiting requests of one web server.

    Args:
        db: the pool and its connector.
        pool_size: how many connections the pool has; woken requests use half of them.

    Attributes:
        checks: the number of checks so far.
    """

    def __init__(self, db: DatabasePool, pool_size: int) -> None:
        self.db = db
        self.name = f"web:{socket.gethostname()}:{os.getpid()}:{token_hex(2)}"
        self.checks = 0
        self._max_claims = max(1, pool_size // 2)
        self._claim_slots = asyncio.Semaphore(self._max_claims)
        self._requests_of: Counter[str] = Counter()
        self._waiters: dict[WaitingRequest, None] = {}  # longest waiting first
        self._waited_topics = WaitedTopics(MAX_TOPICS)
        self._waited_topics_by_caller: dict[str, WaitedTopics] = {}
        # What the last check found, without topics that a claim has found empty since.
        self._ready: set[str] = set()
        self._check_failures = FailureLog("long poll")
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def admitted(self, caller: str) -> Iterator[None]:
        """Count a request of a caller for as long as it may wait.

        Raises:
            Problem: 429, too many requests of the caller are waiting; 503, of all callers.
        """
        if self._requests_of[caller] >= MAX_WAITING_OF_CALLER:
            limit = f"{MAX_WAITING_OF_CALLER} requests of one token may wait at the same time"
            raise _too_many(429, f"{limit}: create a token for each group of workers")
        if self._requests_of.total() >= MAX_WAITING:
            raise _too_many(503, "too many requests wait for messages: try again")
        self._requests_of[caller] += 1
        try:
            yield
        finally:
            self._requests_of -= Counter({caller: 1})

    @asynccontextmanager
    async def waiting(self, caller: str, topics: list[str]) -> AsyncIterator[WaitingRequest]:
        """Register a waiting request of a caller.

        Raises:
            Problem: 429, the caller waits for too many topics; 503, all callers together do.
        """
        waiter = WaitingRequest(topics)
        by_caller = self._waited_topics_by_caller.get(caller, WaitedTopics(MAX_TOPICS_PER_CALLER))
        self._check_capacity(waiter.topics, by_caller)
        self._waited_topics_by_caller[caller] = by_caller
        self._waiters[waiter] = None
        self._waited_topics.add(waiter.topics)
        by_caller.add(waiter.topics)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="long poll")
        try:
            yield waiter
        finally:
            del self._waiters[waiter]
            self._waited_topics.remove(waiter.topics)
            by_caller.remove(waiter.topics)
            if not by_caller:
                self._waited_topics_by_caller.pop(caller, None)

    def _check_capacity(self, topics: frozenset[str], by_caller: WaitedTopics) -> None:
        if not by_caller.has_capacity(topics):
            limit = f"requests of one token may wait for {MAX_TOPICS_PER_CALLER} topics together"
            raise _too_many(429, f"{limit}: ask for fewer")
        if not self._waited_topics.has_capacity(topics):
            raise _too_many(503, f"requests may wait for {MAX_TOPICS:,} topics together: try again")

    @asynccontextmanager
    async def claim_slot(self, until: float) -> AsyncIterator[bool]:
        """Wait for a slot to claim; False: there was none until then (by time.monotonic)."""
        try:
            async with asyncio.timeout(max(0, until - time.monotonic())):
                await self._claim_slots.acquire()
        except TimeoutError:
            yield False
            return
        try:
            yield True
        finally:
            self._claim_slots.release()

    def may_have_messages(self, waiter: WaitingRequest) -> bool:
        """Return whether there may still be messages for a woken request."""
        return not waiter.topics.isdisjoint(self._ready)

    def record_messages(self, topics: Iterable[str], waiter: WaitingRequest | None) -> None:
        """Record the topics of claimed messages.

        There may be more messages, also for requests that claimed in vain before.
        """
        for topic in topics:
            self._ready |= {topic, *patterns_of(topic)}
        others = (each for each in self._waiters if each is not waiter and self.may_have_messages(each))
        for each in islice(others, self._max_claims):
            each.woken.set()

    def record_no_messages(self, topics: Iterable[str], checks: int) -> None:
        """Record that a claim, started after this number of checks, found nothing.

        No request woken by the last check needs to try.
        """
        if checks == self.checks:
            self._ready.difference_update(topics)

    def wake_all(self) -> None:
        """Wake every request: there may be messages, or the server stops."""
        for waiter in self._waiters:
            waiter.woken.set()

    async def close(self) -> None:
        """Stop the task."""
        self.wake_all()
        if self._task is not None:
            await loop.end([self._task])

    async def _run(self) -> None:
        """Listen while requests wait, also for those that arrive while the connection is being closed."""
        while self._waiters:
            await self._listen()

    async def _listen(self) -> None:
        """Check at every notification and at least once a second, until no request waits.

        It does so also while nothing can listen.
        """
        connection = ListenConnection(self.db.connector, "long poll listener", "new_message")
        try:
            while self._waiters:
                # One check serves all notifications so far.
                await connection.receive(CHECK_S)
                await self._check()
        finally:
            await connection.close()
            with suppress(psycopg.Error):
                async with self.db.connection() as pooled:
                    await run_async(pooled, unregister_worker(self.name))

    async def _check(self) -> None:
        """Arm until the next check, and wake the requests that may have messages."""
        topics = self._waited_topics.topics()
        try:
            async with self.db.connection() as conn:
                await run_async(conn, arm(self.name, topics, timedelta(seconds=CHECK_S)))
                ready = await run_async(conn, ready_topics(topics))
        except psycopg.Error as error:
            await asyncio.sleep(min(CHECK_S, self._check_failures.failed(error)))
            return
        self._check_failures.recovered()
        # Set both together: a claim that started before does not know what this check has found.
        self._ready, self.checks = set(ready), self.checks + 1
        for waiter in self._waiters:
            if self.may_have_messages(waiter):
                waiter.woken.set()


def _too_many(status: int, detail: str) -> Problem:
    return Problem(status, detail, "too_many_waiting", {"Retry-After": "1"})
