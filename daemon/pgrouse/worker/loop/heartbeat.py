"""The heartbeat: extends the locks of all messages in flight, at a third of each lock.

It has a thread with its own connection.

It is a thread: if a handler blocks the event loop, the other messages must not lose their locks.
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

from pgrouse.client.call import Call, run
from pgrouse.client.calls.monitoring.stats import record_measures
from pgrouse.client.calls.processing.run import cancelled_ids, heartbeat, set_progress
from pgrouse.client.calls.processing.worker import register_worker, touch_worker, unregister_worker
from pgrouse.client.connection.closed_after import closed_after
from pgrouse.client.connection.database import Database
from pgrouse.client.message import Message, claim_refs
from pgrouse.client.queries.worker import worker_requests
from pgrouse.errors import DatabaseUnreachable, LockLost
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.metrics.health import LoopMonitor
from pgrouse.worker.execution.blocker import describe_blocker
from pgrouse.worker.execution.in_flight import SHORT_LOCK_S, InFlight, LockExtension
from pgrouse.worker.execution.progress import ProgressNote
from pgrouse.worker.reporting.metrics_reporter import MetricsReport, MetricsReporter

MAX_PAUSE_S = SHORT_LOCK_S / 3
MIN_PAUSE_S = 0.02
REGISTRY_INTERVAL_S = 5.0
# A heartbeat that takes longer than this is cancelled and sent again; it skips locked rows, so it should never wait.
STATEMENT_TIMEOUT_MS = 5_000
# Locks come first: a registry update or a report that takes longer than this is cancelled and sent again later. A third
# of the shortest lock in flight if that is less, so that waiting here loses no lock.
REGISTRY_TIMEOUT_MS = 1_000
REGISTRY_MIN_TIMEOUT_MS = 50
REGISTRY_RETRY_S = 1.0
# At the end: how long reports are retried, how often, and when the connection is closed even if the last ones have not
# arrived.
LAST_REPORTS_TIMEOUT_S = 1.5
LAST_REPORTS_RETRY_S = 0.05
DEREGISTER_TIMEOUT_S = 4.0
SET_TIMEOUT = (
    b"SELECT pg_catalog.set_config('statement_timeout', %s, true), pg_catalog.set_config('synchronous_commit', "
    b"'off', true)"
)
# Without an answer for this long the connection is dead. libpq would wait forever if a proxy keeps the socket open.
NO_ANSWER_TIMEOUT_S = 8.0
# A handler is stopped after its timeout. If it still runs after this many more seconds, its lock is no longer extended.
STOP_GRACE_S = 1.0
LOOP_BLOCKED_S = 2.0


@dataclass(frozen=True, slots=True)
class WorkerRequests:
    """The requests of operators to a worker, in the registry.

    Attributes:
        drain: whether to stop.
        concurrency: how many handlers to run at once; None = as configured.
    """

    drain: bool = False
    concurrency: int | None = None


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
        in_flight: the messages whose locks it extends.
        on_lock_lost: called on the event loop with the messages whose lock was lost, as they were claimed.
        worker: the worker's entry in the registry.
        status: returns the status that is written there.
        reporter: creates the metrics reports that are sent with each registry update; nothing unless given.
        on_requests: called on the event loop when the requests of operators change.

    Attributes:
        last_seen_at: when the database last accepted a registry update, by the monotonic clock; 0 if it has not yet.
    """

    def __init__(
        self,
        db: Database,
        in_flight: InFlight,
        on_lock_lost: Callable[[list[Message]], None],
        worker: Registration,
        status: Callable[[], dict[str, Any]],
        reporter: MetricsReporter | None = None,
        on_requests: Callable[[WorkerRequests], None] | None = None,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.reporter, self.on_requests = reporter, on_requests
        self._requests = WorkerRequests()
        self.db, self.in_flight, self.on_lock_lost, self.worker, self.status = (
            db,
            in_flight,
            on_lock_lost,
            worker,
            status,
        )
        self.loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        # InFlight also sets it: a message with a short lock may arrive just after a long pause has started.
        self._wake = in_flight.wake_heartbeat
        self._check_all = False
        # By id and claim: when this last extended a lock, by the monotonic clock.
        self._extended_at: dict[tuple[int, int], float] = {}
        self._stopping = False
        self._conn: psycopg.Connection | None = None
        self._failing = False
        self._failing_since = 0.0
        self.last_seen_at = 0.0
        self._beat_started_at = time.monotonic()
        self._registry_due_at = 0.0
        self._registry_failed = self._report_failed = False
        self._loop_monitor = LoopMonitor()
        self._loop_monitor.watch(self.loop)
        self._loop_was_blocked = False

    @property
    def is_failing(self) -> bool:
        """Whether the last beat failed."""
        return self._failing

    @property
    def beat_age_s(self) -> float:
        """How long the current beat has been running, in seconds; a new one starts every second."""
        return time.monotonic() - self._beat_started_at

    def run_now(self) -> None:
        """Check all locks now: a notification says that one is lost."""
        self._check_all = True
        self._wake.set()

    def stop_soon(self) -> None:
        """Let the thread end."""
        self._stopping = True
        self._wake.set()

    def stop(self, within_s: float = 5.0) -> None:
        """End the thread; return when it has ended, or after this time.

        A thread that waits for a server without an answer ends with the process.
        """
        self.stop_soon()
        self.join(within_s)

    def run(self) -> None:
        """Beat until stopped. All failures are handled here."""
        while not self._stopping:
            self._beat_started_at = time.monotonic()
            try:
                self._beat()
                self._recovered()
            except Exception as error:  # noqa: BLE001 - without a heartbeat a daemon loses all messages in flight
                self._fail(error)
            self._check_event_loop()
            self._wake.wait(self._pause_s())
            self._wake.clear()
        for extension in self.in_flight.extensions:
            _fail_extension(extension)
        self._deregister()
        self._close()

    def _beat(self) -> None:
        now = time.monotonic()
        everything, self._check_all = self._check_all, False
        extensions = [self.in_flight.extensions.popleft() for _ in range(len(self.in_flight.extensions))]
        notes = self.in_flight.progress.due(now)
        due = [message for message, due_at in self._due_times(now) if everything or now >= due_at]
        seen = now >= self._registry_due_at
        if not (due or seen or extensions or notes):
            return
        try:
            self._send(due, extensions, notes, seen=seen)
        except BaseException:
            self.in_flight.extensions.extendleft(
                reversed([extension for extension in extensions if not extension.done.done()])
            )
            self.in_flight.progress.put_back(notes)
            raise

    def _send(
        self, due: list[Message], extensions: list[LockExtension], notes: list[ProgressNote], *, seen: bool
    ) -> None:
        now = time.monotonic()
        if self._conn is None:
            self._conn = self.db.connect_blocking("heartbeat")
        with closed_after(NO_ANSWER_TIMEOUT_S, self._conn):
            if due:
                self._extend(self._conn, due, now)
            for extension in extensions:
                self._complete_extension(self._conn, extension)
            if notes:
                self._write_progress(self._conn, notes)
        # This comes last and has its own timeout: no lock waits for it.
        if seen:
            with closed_after(NO_ANSWER_TIMEOUT_S, self._conn):
                self._update_worker(self._conn, now)

    def _write_progress(self, conn: psycopg.Connection, notes: list[ProgressNote]) -> None:
        noted = [note.message for note in notes]
        progress = set_progress(*claim_refs(noted), [note.text for note in notes], wait=False)
        self._on_lost(conn, self._lost_ids(conn, progress), noted)

    def _extend(self, conn: psycopg.Connection, due: list[Message], now: float) -> None:
        lost = self._lost_ids(conn, heartbeat(*claim_refs(due)))
        in_flight = {(message.id, message.claim_id) for message, _ in self.in_flight.snapshot()}
        extended = self._extended_at | {(message.id, message.claim_id): now for message in due}
        self._extended_at = {claim: at for claim, at in extended.items() if claim in in_flight}
        self._on_lost(conn, lost, due)

    def _due_times(self, now: float) -> list[tuple[Message, float]]:
        """Return the messages whose locks are extended, and from when on each should be."""
        return [
            (message, self._extended_at.get((message.id, message.claim_id), claimed_at) + message.lock_duration_s / 3)
            for message, claimed_at in self.in_flight.snapshot()
            if not self._is_abandoned(message, now)
        ]

    def _is_abandoned(self, message: Message, now: float) -> bool:
        limit = message.timeout_s
        if limit is None:
            return False
        started = self.in_flight.started_at(message)
        return started is not None and now > started + limit + STOP_GRACE_S

    def _complete_extension(self, conn: psycopg.Connection, extension: LockExtension) -> None:
        """Extend one lock by the time that its handler asked for, and let the handler continue."""
        lost = self._lost_ids(conn, heartbeat(*claim_refs([extension.message]), extension.lock_duration))
        self._on_lost(conn, lost, [extension.message])
        if lost:
            _fail_extension(extension)
        else:
            _resolve(extension)

    def _lost_ids(self, conn: psycopg.Connection, call: Call[list[int]]) -> list[int]:
        """Make a call about some messages within a bounded time; return the ids whose lock was lost."""
        with conn.transaction():
            conn.execute(f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS}".encode())
            return run(conn, call)

    def _on_lost(self, conn: psycopg.Connection, lost: list[int], asked: list[Message]) -> None:
        if not lost:
            return
        gone = [message for message in asked if message.id in lost]
        cancelled = self._lost_ids(conn, cancelled_ids(*claim_refs(gone)))
        # Here and not on the event loop: a handler in a thread must see it even if the event loop is blocked.
        self.in_flight.mark_cancelled(message for message in gone if message.id in cancelled)
        self.loop.call_soon_threadsafe(self.on_lock_lost, gone)

    def _update_worker(self, conn: psycopg.Connection, now: float) -> None:
        """Update the registry, read the requests of operators, report metrics.

        If the database rejects this, try again later on the same connection.
        """
        if not self._update_registry(conn):
            self._registry_due_at = now + REGISTRY_RETRY_S
            return
        self.last_seen_at, self._registry_due_at = now, now + REGISTRY_INTERVAL_S
        self._report(conn)

    def _update_registry(self, conn: psycopg.Connection) -> bool:
        """Update the registry; return whether the database accepted it. A rejected update has no other effect.

        Raises:
            psycopg.Error: the connection is broken.
        """
        try:
            with conn.transaction():
                self._set_timeout(conn)
                self._register(conn)
                requests = self._read_requests(conn)
        except psycopg.Error as error:
            if conn.broken:
                raise
            if not self._registry_failed:
                log.warning(events.REGISTRY_UPDATE_FAILED, reason=" ".join(str(error).split()))
            self._registry_failed = True
            return False
        self._registry_failed = False
        self._take_requests(requests)
        return True

    def _set_timeout(self, conn: psycopg.Connection) -> None:
        """Limit the time of each statement in the transaction, and do not wait for the disk at its end."""
        held = self.in_flight.snapshot()
        shortest_s = min((message.lock_duration_s for message, _ in held), default=SHORT_LOCK_S)
        timeout_ms = min(REGISTRY_TIMEOUT_MS, max(REGISTRY_MIN_TIMEOUT_MS, round(shortest_s / 3 * 1000)))
        conn.execute(SET_TIMEOUT, [str(timeout_ms)])

    def _register(self, conn: psycopg.Connection) -> None:
        if not self._mark_seen(conn):
            run(conn, register_worker(*astuple(self.worker)))
            self._mark_seen(conn)

    def _mark_seen(self, conn: psycopg.Connection) -> bool:
        return run(conn, touch_worker(self.worker.name, json.dumps(self.status())))

    def _read_requests(self, conn: psycopg.Connection) -> WorkerRequests:
        row = run(conn, worker_requests(self.worker.name))
        return self._requests if row is None else WorkerRequests(*row)

    def _take_requests(self, requests: WorkerRequests) -> None:
        if requests != self._requests and self.on_requests is not None:
            self.loop.call_soon_threadsafe(self.on_requests, requests)
        self._requests = requests

    def _report(self, conn: psycopg.Connection) -> None:
        """Report the metrics. If the database rejects them, nothing else fails: no lock may be lost because of it."""
        report = None if self.reporter is None else self.reporter.next()
        if self.reporter is None or report is None:
            return
        try:
            is_taken = self._send_report(conn, report)
        except psycopg.Error as error:
            if conn.broken:
                raise
            if not self._report_failed:
                log.warning(events.METRICS_REPORT_FAILED, reason=" ".join(str(error).split()))
            self._report_failed = True
            return
        self._report_failed = False
        if is_taken:
            self.reporter.acknowledged()

    def _send_report(self, conn: psycopg.Connection, report: MetricsReport) -> bool:
        with conn.transaction():
            self._set_timeout(conn)
            return run(conn, record_measures(self.worker.name, report.number, report.measures)) is True

    def _deregister(self) -> None:
        """Send the last report and leave the registry; if that fails the entry is deleted later."""
        self.on_requests = None
        with suppress(psycopg.Error, DatabaseUnreachable, OSError):
            if self._conn is None:
                self._conn = self.db.connect_blocking("heartbeat")
            with closed_after(DEREGISTER_TIMEOUT_S, self._conn):
                self._update_registry(self._conn)
                self._send_last_reports(self._conn)
                with self._conn.transaction():
                    # Nothing follows: a slow server may use all of the time.
                    self._conn.execute(SET_TIMEOUT, [str(round(DEREGISTER_TIMEOUT_S * 1000))])
                    run(self._conn, unregister_worker(self.worker.name))

    def _send_last_reports(self, conn: psycopg.Connection) -> None:
        """Send the pending report, and then what was measured since, until nothing is left. Limited in time."""
        until = time.monotonic() + LAST_REPORTS_TIMEOUT_S
        while self.reporter is not None and self.reporter.next() is not None and time.monotonic() < until:
            self._report(conn)
            if self.reporter.has_pending:
                time.sleep(LAST_REPORTS_RETRY_S)

    def _check_event_loop(self) -> None:
        """Log once when the event loop stops responding, which means that a handler blocks it."""
        late = self._loop_monitor.lag_s
        if late > LOOP_BLOCKED_S and not self._loop_was_blocked:
            log.warning(
                events.EVENT_LOOP_BLOCKED,
                blocked_s=round(late, 1),
                **describe_blocker(self._loop_thread),
                fix="an async handler computes or waits without await: make it a plain function, "
                'or set isolation = "process"',
            )
        self._loop_was_blocked = late > LOOP_BLOCKED_S
        self._loop_monitor.ask()

    def _pause_s(self) -> float:
        now = time.monotonic()
        soonest = min((due_at - now for _, due_at in self._due_times(now)), default=MAX_PAUSE_S)
        if self._failing:
            return MAX_PAUSE_S
        soonest = min(soonest, self.in_flight.progress.pause_s(now))
        return min(max(soonest, MIN_PAUSE_S), MAX_PAUSE_S)

    def _fail(self, error: Exception) -> None:
        if not self._failing:
            self._failing_since = time.monotonic()
            log.warning(events.HEARTBEAT_FAILED, reason=" ".join(str(error).split()) or type(error).__name__)
        self._failing = True
        self._close()

    def _recovered(self) -> None:
        if self._failing:
            log.info(events.HEARTBEAT_RESTORED, lasted_s=round(time.monotonic() - self._failing_since, 1))
        self._failing = False

    def _close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()


def _resolve(extension: LockExtension) -> None:
    with suppress(InvalidStateError):  # the handler was cancelled and no longer waits
        extension.done.set_result(None)


def _fail_extension(extension: LockExtension) -> None:
    with suppress(InvalidStateError):
        extension.done.set_exception(
            LockLost(f"message {extension.message.id} is not this worker's any more: stop working on it")
        )
