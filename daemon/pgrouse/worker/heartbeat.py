"""The heartbeat: extends the locks of everything in hand, at a third of each lock, from a thread with a connection of its own.

A thread, because a handler that blocks the event loop must not cost the others their locks.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Any

import psycopg
import structlog

from pgrouse import events
from pgrouse.client.database import Database, hung_up_after
from pgrouse.errors import DatabaseUnreachable, LockLost
from pgrouse.worker.in_flight import SHORT_S, Extension, Hand, Held
from pgrouse.worker.metrics_reporter import Report, Reports
from pgrouse.client.message import Message
from pgrouse.worker.progress import Note
from pgrouse.client.worker_client import cancelled_statement, heartbeat_statement, progress_statement

log = structlog.get_logger()

LONGEST_PAUSE_S = SHORT_S / 3
SHORTEST_PAUSE_S = 0.02
SEEN_EVERY_S = 5.0
# A heartbeat that takes longer than this is given up and sent again; it skips rows that are locked, so it should never wait.
STATEMENT_TIMEOUT_MS = 5_000
# Locks of messages come first: a sign of life or a report that takes longer is given up and made again later. Less while a lock in hand is
# short: a third of it, so that what waits here costs no lock.
SIGN_TIMEOUT_MS = 1_000
SHORTEST_SIGN_MS = 50
SIGN_AGAIN_S = 1.0
# At the end: for so long reports are tried again, and after so long the connection is cut, whatever has not come.
LAST_REPORTS_S = 1.5
LAST_AGAIN_S = 0.05
SIGN_OFF_S = 4.0
HURRY_UP = b"SELECT pg_catalog.set_config('statement_timeout', %s, true), pg_catalog.set_config('synchronous_commit', 'off', true)"
DRAIN = b"SELECT w.drain_asked_at IS NOT NULL FROM messages.worker AS w WHERE w.name OPERATOR(pg_catalog.=) %s"
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
        on_lost: called on the event loop with the messages whose lock was lost, as they were claimed.
        worker: how the worker is entered into the registry.
        status: what it says of itself there.
        reports: what it reports of its measures, with each sign of life; nothing unless given.
        on_drain: called on the event loop, once, when somebody has asked the worker to drain.

    Attributes:
        seen_at: when the database took the last sign of life in, by the monotonic clock; 0 if it has not yet.
    """

    def __init__(
        self,
        db: Database,
        hand: Hand,
        on_lost: Callable[[list[Message]], None],
        worker: Registration,
        status: Callable[[], dict[str, Any]],
        reports: Reports | None = None,
        on_drain: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.reports, self.on_drain = reports, on_drain
        self.db, self.hand, self.on_lost, self.worker, self.status = db, hand, on_lost, worker, status
        self.loop = asyncio.get_running_loop()
        # Also set by the hand: a message with a short lock may come right after a long pause has begun.
        self._wake = hand.hurry
        self._all = False
        self._stopping = False
        self._conn: psycopg.Connection | None = None
        self._failing = False
        self.seen_at = 0.0
        self._turned_at = time.monotonic()
        self._sign_at = 0.0
        self._sign_was_refused = self._report_was_refused = False
        self._asked_at: float | None = None
        self._loop_was_blocked = False

    @property
    def is_failing(self) -> bool:
        """Whether the last beat failed."""
        return self._failing

    @property
    def still_s(self) -> float:
        """How long the thread has been at one beat, in seconds; it begins one each second."""
        return time.monotonic() - self._turned_at

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
            self._turned_at = time.monotonic()
            try:
                self._beat()
                self._failing = False
            except Exception as error:  # noqa: BLE001 - also no thread, no memory: a daemon without a heartbeat loses all it has in hand
                self._fail(error)
            self._watch_the_loop()
            self._wake.wait(self._pause_s())
            self._wake.clear()
        for wish in self.hand.extensions:
            _break(wish)
        self._sign_off()
        self._close()

    def _beat(self) -> None:
        now = time.monotonic()
        everything, self._all = self._all, False
        wishes = [self.hand.extensions.popleft() for _ in range(len(self.hand.extensions))]
        notes = self.hand.progress.due(now)
        due = [held for held in self.hand.snapshot() if everything or _is_due(held, now)]
        due = [held for held in due if not _is_given_up(held, now)]
        seen = now >= self._sign_at
        if not (due or seen or wishes or notes):
            return
        try:
            self._send(due, wishes, notes, seen=seen)
        except BaseException:
            self.hand.extensions.extendleft(reversed([wish for wish in wishes if not wish.done.done()]))
            self.hand.progress.put_back(notes)
            raise

    def _send(self, due: list[Held], wishes: list[Extension], notes: list[Note], *, seen: bool) -> None:
        now = time.monotonic()
        if self._conn is None:
            self._conn = self.db.connect_blocking("heartbeat")
        with hung_up_after(HANG_UP_S, self._conn):
            if due:
                self._extend(self._conn, due, now)
            for wish in wishes:
                self._fulfil(self._conn, wish)
            if notes:
                noted = [(note.message, note.text) for note in notes]
                self._lose(
                    self._conn, self._ask(self._conn, progress_statement(noted, wait=False)), [m for m, _ in noted]
                )
        # Last, and with a time of its own: locks wait for none of this.
        if seen:
            with hung_up_after(HANG_UP_S, self._conn):
                self._tell(self._conn, now)

    def _extend(self, conn: psycopg.Connection, due: list[Held], now: float) -> None:
        lost = self._ask(conn, heartbeat_statement(held.message for held in due))
        for held in due:
            held.beat = now
        self._lose(conn, lost, [held.message for held in due])

    def _fulfil(self, conn: psycopg.Connection, wish: Extension) -> None:
        """Extend one lock for as long as its handler wishes, and let the handler go on."""
        lost = self._ask(conn, heartbeat_statement([wish.message], wish.lock_for))
        self._lose(conn, lost, [wish.message])
        if lost:
            _break(wish)
        else:
            _fulfilled(wish)

    def _ask(self, conn: psycopg.Connection, statement: tuple[bytes, list[Any]]) -> list[int]:
        """Return the ids whose lock was lost, as a statement about some of them says."""
        with conn.transaction():
            conn.execute(f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS}".encode())
            row = conn.execute(*statement).fetchone()
        return [] if row is None else list(row[0])

    def _lose(self, conn: psycopg.Connection, lost: list[int], asked: list[Message]) -> None:
        if not lost:
            return
        gone = [message for message in asked if message.id in lost]
        cancelled = self._ask(conn, cancelled_statement(gone))
        # Here and not on the event loop: what a handler in a thread sees does not depend on whether that turns.
        self.hand.cancel(message for message in gone if message.id in cancelled)
        self.loop.call_soon_threadsafe(self.on_lost, gone)

    def _tell(self, conn: psycopg.Connection, now: float) -> None:
        """Give a sign of life, read what is wished, report. What the database does not take is told again later, and costs no connection."""
        if not self._signs(conn):
            self._sign_at = now + SIGN_AGAIN_S
            return
        self.seen_at, self._sign_at = now, now + SEEN_EVERY_S
        self._report(conn)

    def _signs(self, conn: psycopg.Connection) -> bool:
        """Give a sign of life; return whether the database took it in. One that it refuses breaks nothing.

        Raises:
            psycopg.Error: the connection is broken.
        """
        try:
            with conn.transaction():
                self._hurry_up(conn)
                self._sign(conn)
                is_asked = self._is_asked_to_drain(conn)
        except psycopg.Error as error:
            if conn.broken:
                raise
            if not self._sign_was_refused:
                log.warning(events.SIGN_REFUSED, reason=" ".join(str(error).split()))
            self._sign_was_refused = True
            return False
        self._sign_was_refused = False
        if is_asked and self.on_drain is not None:
            self.loop.call_soon_threadsafe(self.on_drain)
            self.on_drain = None
        return True

    def _hurry_up(self, conn: psycopg.Connection) -> None:
        """Bound each statement of the transaction, and let its end wait for no flush."""
        shortest_s = min((held.message.lock_for_s for held in self.hand.snapshot()), default=SHORT_S)
        timeout_ms = min(SIGN_TIMEOUT_MS, max(SHORTEST_SIGN_MS, round(shortest_s / 3 * 1000)))
        conn.execute(HURRY_UP, [str(timeout_ms)])

    def _sign(self, conn: psycopg.Connection) -> None:
        if not self._seen(conn):
            conn.execute("SELECT messages.worker_started(%s, %s, %s, %s, %s, %s)", astuple(self.worker))
            self._seen(conn)

    def _seen(self, conn: psycopg.Connection) -> bool:
        status = json.dumps(self.status())
        return conn.execute(
            "SELECT messages.worker_seen(%s, %s::pg_catalog.jsonb)", [self.worker.name, status]
        ).fetchone() == (True,)

    def _is_asked_to_drain(self, conn: psycopg.Connection) -> bool:
        return self.on_drain is not None and conn.execute(DRAIN, [self.worker.name]).fetchone() == (True,)

    def _report(self, conn: psycopg.Connection) -> None:
        """Report what was measured. A database that does not take it must not cost a lock: then nothing else happens."""
        report = None if self.reports is None else self.reports.next()
        if self.reports is None or report is None:
            return
        try:
            is_taken = self._deliver(conn, report)
        except psycopg.Error as error:
            if conn.broken:
                raise
            if not self._report_was_refused:
                log.warning(events.REPORT_REFUSED, reason=" ".join(str(error).split()))
            self._report_was_refused = True
            return
        self._report_was_refused = False
        if is_taken:
            self.reports.arrived()

    def _deliver(self, conn: psycopg.Connection, report: Report) -> bool:
        given = [self.worker.name, report.number, report.measures]
        with conn.transaction():
            self._hurry_up(conn)
            row = conn.execute("SELECT messages.worker_measured(%s, %s, %s::pg_catalog.jsonb)", given).fetchone()
        return row == (True,)

    def _sign_off(self) -> None:
        """Report the last and leave the registry; if that fails the entry is pruned later."""
        self.on_drain = None
        with suppress(psycopg.Error, DatabaseUnreachable, OSError):
            if self._conn is None:
                self._conn = self.db.connect_blocking("heartbeat")
            with hung_up_after(SIGN_OFF_S, self._conn):
                self._signs(self._conn)
                self._report_the_rest(self._conn)
                with self._conn.transaction():
                    self._hurry_up(self._conn)
                    self._conn.execute("SELECT messages.worker_stopped(%s)", [self.worker.name])

    def _report_the_rest(self, conn: psycopg.Connection) -> None:
        """Report until nothing is left: what is open still, and then what was measured since. Not for long."""
        until = time.monotonic() + LAST_REPORTS_S
        while self.reports is not None and self.reports.next() is not None and time.monotonic() < until:
            self._report(conn)
            if self.reports.is_open:
                time.sleep(LAST_AGAIN_S)

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
        soonest = min(soonest, self.hand.progress.pause_s(now))
        return min(max(soonest, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)

    def _fail(self, error: Exception) -> None:
        if not self._failing:
            log.warning(events.HEARTBEAT_FAILED, reason=" ".join(str(error).split()) or type(error).__name__)
        self._failing = True
        self._close()

    def _close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()


def _fulfilled(wish: Extension) -> None:
    with suppress(InvalidStateError):  # nobody waits any more: the handler was cancelled
        wish.done.set_result(None)


def _break(wish: Extension) -> None:
    with suppress(InvalidStateError):
        wish.done.set_exception(
            LockLost(f"message {wish.message.id} is not this worker's any more: stop working on it")
        )


def _is_due(held: Held, now: float) -> bool:
    return now - held.beat >= held.message.lock_for_s / 3


def _is_given_up(held: Held, now: float) -> bool:
    limit = held.message.run_timeout_s
    return limit is not None and held.started is not None and now > held.started + limit + GRACE_S
