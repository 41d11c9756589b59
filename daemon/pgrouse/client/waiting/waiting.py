"""The waits of one `Waiter`.

One connection listens for all of them, and one statement asks for all that may have ended.

Everything here runs on an event loop of its own, in the thread of the `Waiter`; others hand in waits by
`call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import math
import time
import warnings
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import psycopg

from pgrouse.client.call import run_async
from pgrouse.client.calls.processing import wake as calls
from pgrouse.client.waiting.message_result import LISTEN, PROCESS, REGISTER_FOR, MessageResult, Wait
from pgrouse.config.duration import AnyDuration
from pgrouse.database import session_settings
from pgrouse.database.database_errors import CONNECTION_ERRORS
from pgrouse.process.backoff import FailureLog

# A call registers the waits for two minutes and is repeated each minute: a lost notification costs a minute.
CHECK_EVERY_S = 60.0
POLL_EVERY_S = 1.0
# For messages that are locked at the moment: they are about to end.
ENDING_MIN_S, ENDING_MAX_S = 0.02, 1.0
# The maximum number of ids in one call.
PART = 1000
# A connection that has not answered by then is dead.
ANSWER_TIMEOUT_S = 15.0
THROUGH_A_POOLER = (
    "the Waiter is connected through a pooler, where no notification arrives: it polls each second; "
    "connect to the server itself"
)


class SharedWait(Wait):
    """One of many waits.

    Attributes:
        future: gets the result.
    """

    __slots__ = ("future",)

    def __init__(self, message_id: int, timeout: AnyDuration | None) -> None:
        super().__init__(message_id, timeout)
        self.future: Future[MessageResult] = Future()
        # From here on it cannot be cancelled: its result may be set at any time.
        self.future.set_running_or_notify_cancel()


class Waiting:
    """The waits, and the connection that serves them.

    Args:
        dsn: where.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._waits: dict[int, set[SharedWait]] = {}
        # Ids to be asked for with the next call; and of those the ones that are about to end.
        self._due: set[int] = set()
        self._ending: set[int] = set()
        self._ending_pause_s = ENDING_MIN_S
        self._check_every_s = CHECK_EVERY_S
        self._check_at = math.inf
        self._next_deadline = math.inf
        self._changed = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None
        self._failures = FailureLog("waiter")

    def add(self, wait: SharedWait) -> None:
        """Begin to wait."""
        self._waits.setdefault(wait.message_id, set()).add(wait)
        self._due.add(wait.message_id)
        self._next_deadline = min(self._next_deadline, wait.deadline)
        self._changed.set()

    def discard(self, wait: SharedWait) -> None:
        """Stop to wait; nothing happens if it is over."""
        waits = self._waits.get(wait.message_id)
        if waits is None:
            return
        waits.discard(wait)
        if not waits:
            del self._waits[wait.message_id]

    def stop(self) -> None:
        """Cancel `run`, whatever it waits for: also a server that does not answer."""
        if self._task is not None:
            self._task.cancel()

    async def run(self, connected: Future[None]) -> None:
        """Serve the waits until `stop`, connecting again whenever that is needed.

        connected: gets the outcome of the first attempt.
        """
        self._task = asyncio.current_task()
        while True:
            try:
                async with self._connection() as conn:
                    if not connected.done():
                        connected.set_result(None)
                    await self._serve(conn)
            except CONNECTION_ERRORS as error:
                if not connected.done():
                    connected.set_exception(error.with_traceback(None))  # which has this frame
                    return
                await self._pause(self._failures.failed(error))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with await session_settings.set_up_async(
            await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
        ) as conn:
            conn.add_notify_handler(lambda notified: self._notify(notified.payload))
            await conn.execute(LISTEN)
            is_direct = await run_async(conn, PROCESS) == conn.info.backend_pid
            self._check_every_s = CHECK_EVERY_S if is_direct else POLL_EVERY_S
            if not is_direct:
                warnings.warn(THROUGH_A_POOLER, RuntimeWarning, stacklevel=1)
            yield conn

    async def _serve(self, conn: psycopg.AsyncConnection[Any]) -> None:
        # Notifications from before this connection listened were missed.
        self._due.update(self._waits)
        while True:
            await self._ask(conn)
            await self._listen(conn)

    async def _ask(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Ask for all messages that are due, and end the waits whose time is over."""
        now = time.monotonic()
        overdue = self._take_overdue(now)
        due = self._take_due(now) | {wait.message_id for wait in overdue}
        for part in _parts(due & self._waits.keys()):
            await self._ask_for(conn, part)
        self._failures.recovered()
        for wait in overdue:
            self._expire(wait)

    async def _ask_for(self, conn: psycopg.AsyncConnection[Any], part: list[int]) -> None:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                rows = await run_async(conn, calls.wait_for_many(part, REGISTER_FOR))
        except psycopg.ProgrammingError as error:
            # No right to call the function, or no function: asking again would not help.
            for wait in [wait for each in part for wait in self._waits.get(each, ())]:
                self._fail(wait, error)
            return
        for row in rows:
            self._apply(row)

    def _apply(self, row: calls.StateOfMessage) -> None:
        if row.state == "ending":
            self._ending.add(row.id)
        for wait in list(self._waits.get(row.id, ())):
            try:
                result = wait.take(row)
            except Exception as error:  # noqa: BLE001 - for the one that waits: an output may be no JSON for Python
                self._fail(wait, error)
                continue
            if result is not None:
                self.discard(wait)
                wait.future.set_result(result)

    def _fail(self, wait: SharedWait, error: Exception) -> None:
        self.discard(wait)
        # Without its traceback, whose frames have the wait: they would keep each other alive.
        wait.future.set_exception(error.with_traceback(None))

    def _take_due(self, now: float) -> set[int]:
        due, self._due = self._due, set()
        if now >= self._check_at or math.isinf(self._check_at):
            due |= self._waits.keys()
            self._check_at = now + self._check_every_s
        due |= self._ending
        self._ending_pause_s = min(self._ending_pause_s * 2, ENDING_MAX_S) if self._ending else ENDING_MIN_S
        self._ending = set()
        return due

    def _take_overdue(self, now: float) -> list[SharedWait]:
        if now < self._next_deadline:
            return []
        overdue = [wait for wait in self._all() if wait.deadline <= now]
        self._next_deadline = min((w.deadline for w in self._all() if w.deadline > now), default=math.inf)
        return overdue

    def _expire(self, wait: SharedWait) -> None:
        if wait in self._waits.get(wait.message_id, ()):
            self._fail(wait, wait.expired())

    def _all(self) -> list[SharedWait]:
        return [wait for waits in self._waits.values() for wait in waits]

    def _notify(self, payload: str) -> None:
        if payload.isdecimal() and int(payload) in self._waits:
            self._due.add(int(payload))

    async def _listen(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Wait until something arrives on the connection, a wait is handed in, or it is time to ask again."""
        self._read_notifications(conn)
        if self._due:
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(conn.fileno(), self._changed.set)
        try:
            await self._until_changed(self._idle_s())
        finally:
            loop.remove_reader(conn.fileno())
        conn.pgconn.consume_input()
        self._read_notifications(conn)

    def _read_notifications(self, conn: psycopg.AsyncConnection[Any]) -> None:
        while (notified := conn.pgconn.notifies()) is not None:
            self._notify(notified.extra.decode())

    def _idle_s(self) -> float:
        pause_s = self._ending_pause_s if self._ending else math.inf
        return max(0.0, min(pause_s, min(self._check_at, self._next_deadline) - time.monotonic()))

    async def _until_changed(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    async def _pause(self, seconds: float) -> None:
        """Wait without a connection; time passes for the waits."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await self._until_changed(min(left, max(0.0, self._next_deadline - time.monotonic())))
            for wait in self._take_overdue(time.monotonic()):
                self._expire(wait)


def _parts(ids: Iterable[int]) -> list[list[int]]:
    left = iter(sorted(ids))
    return list(iter(lambda: list(islice(left, PART)), []))
