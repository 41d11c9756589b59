"""The heartbeat: extends the locks of everything in hand, at a third of each lock, from a thread with a connection of its own.

A thread, because a handler that blocks the event loop must not cost the others their locks.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Any

import psycopg
import structlog

from pgrouse import events
from pgrouse.database import Database, hung_up_after
from pgrouse.errors import DatabaseUnreachable
from pgrouse.hand import SHORT_S, Hand, Held
from pgrouse.store import heartbeat_statement

log = structlog.get_logger()

LONGEST_PAUSE_S = SHORT_S / 3
SHORTEST_PAUSE_S = 0.02
SEEN_EVERY_S = 5.0
# A heartbeat that takes longer than this is given up and sent again; it skips rows that are locked, so it should never wait.
STATEMENT_TIMEOUT_MS = 5_000
# No answer at all: the path is dead. libpq would wait for ever if a proxy keeps the socket alive.
HANG_UP_S = 8.0
# After its run_timeout a handler is told to stop. One that does not is no longer covered after so long.
GRACE_S = 1.0
BLOCKED_S = 2.0


@dataclass(frozen=True)
class Registration:
    """A worker in the registry `messages.worker`."""

    name: str
    host: str
    pid: int
    version: str
    topics: list[str]
    concurrency: int


class Heartbeat(threading.Thread):
    """The heartbeat of one daemon.

    Args:
        hand: what to extend.
        on_lost: called on the event loop with the ids whose lock was lost.
        worker: how the worker is entered into the registry.
        status: what it says of itself there.
    """

    def __init__(
        self,
        db: Database,
        hand: Hand,
        on_lost: Callable[[list[int]], None],
        worker: Registration,
        status: Callable[[], dict[str, Any]],
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.db, self.hand, self.on_lost, self.worker, self.status = db, hand, on_lost, worker, status
        self.loop = asyncio.get_running_loop()
        # Also set by the hand: a message with a short lock may come right after a long pause has begun.
        self._wake = hand.hurry
        self._all = False
        self._stopping = False
        self._conn: psycopg.Connection | None = None
        self._failing = False
        self._seen_at = 0.0
        self._asked_at: float | None = None
        self._loop_was_blocked = False

    def poke(self) -> None:
        """Check all locks now: somebody says that one was lost."""
        self._all = True
        self._wake.set()

    def stop(self) -> None:
        """End the thread; returns when it has ended, or after a bounded wait."""
        self._stopping = True
        self._wake.set()
        self.join(timeout=5)

    def run(self) -> None:
        """Beat until stopped. This is the one place where its failures are handled."""
        while not self._stopping:
            try:
                self._beat()
                self._failing = False
            except (psycopg.Error, DatabaseUnreachable, OSError) as error:
                self._fail(error)
            self._watch_the_loop()
            self._wake.wait(self._pause_s())
            self._wake.clear()
        self._sign_off()
        self._close()

    def _beat(self) -> None:
        now = time.monotonic()
        everything, self._all = self._all, False
        due = [held for held in self.hand.snapshot() if everything or _is_due(held, now)]
        due = [held for held in due if not _is_given_up(held, now)]
        seen = now - self._seen_at >= SEEN_EVERY_S
        if not due and not seen:
            return
        if self._conn is None:
            self._conn = self.db.connect_blocking("heartbeat")
        with hung_up_after(HANG_UP_S, self._conn):
            if due:
                self._extend(self._conn, due, now)
            if seen:
                self._sign(self._conn)
                self._seen_at = now

    def _extend(self, conn: psycopg.Connection, due: list[Held], now: float) -> None:
        with conn.transaction():
            conn.execute(f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS}".encode())
            row = conn.execute(*heartbeat_statement(held.message for held in due)).fetchone()
        for held in due:
            held.beat = now
        if row is not None and row[0]:
            self.loop.call_soon_threadsafe(self.on_lost, row[0])

    def _sign(self, conn: psycopg.Connection) -> None:
        if not self._seen(conn):
            conn.execute("SELECT messages.worker_started(%s, %s, %s, %s, %s, %s)", astuple(self.worker))
            self._seen(conn)

    def _seen(self, conn: psycopg.Connection) -> bool:
        status = json.dumps(self.status())
        return conn.execute("SELECT messages.worker_seen(%s, %s::jsonb)", [self.worker.name, status]).fetchone() == (
            True,
        )

    def _sign_off(self) -> None:
        """Leave the registry; if that fails the entry is pruned later."""
        with suppress(psycopg.Error):
            if self._conn is not None:
                self._conn.execute("SELECT messages.worker_stopped(%s)", [self.worker.name])

    def _watch_the_loop(self) -> None:
        """Say once when the event loop stops answering, which means that a handler blocks it."""
        now = time.monotonic()
        late = 0.0 if self._asked_at is None else now - self._asked_at
        if late > BLOCKED_S and not self._loop_was_blocked:
            log.warning(
                events.EVENT_LOOP_BLOCKED,
                for_s=round(late, 1),
                mend='an async handler computes or waits without await: make it a plain function, or set isolation = "process"',
            )
        self._loop_was_blocked = late > BLOCKED_S
        if self._asked_at is None:
            self._asked_at = now
            self.loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._asked_at = None

    def _pause_s(self) -> float:
        now = time.monotonic()
        soonest = min(
            (
                held.beat + held.message.lock_for_s / 3 - now
                for held in self.hand.snapshot()
                if not _is_given_up(held, now)
            ),
            default=LONGEST_PAUSE_S,
        )
        if self._failing:
            return LONGEST_PAUSE_S
        return min(max(soonest, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)

    def _fail(self, error: Exception) -> None:
        if not self._failing:
            log.warning(events.HEARTBEAT_FAILED, reason=" ".join(str(error).split()))
        self._failing = True
        self._close()

    def _close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()


def _is_due(held: Held, now: float) -> bool:
    return now - held.beat >= held.message.lock_for_s / 3


def _is_given_up(held: Held, now: float) -> bool:
    limit = held.message.run_timeout_s
    return limit is not None and held.started is not None and now > held.started + limit + GRACE_S
