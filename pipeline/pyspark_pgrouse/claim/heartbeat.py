"""The heartbeat of a claim stream: extends the locks of what is in flight while Spark works on it, from a thread of the reader's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from psycopg import Error

from pgrouse.errors import DatabaseUnreachable
from pyspark_pgrouse.claim.claim_client import ClaimClient
from pyspark_pgrouse.claim.in_flight import MessagesInFlight
from pyspark_pgrouse.claim.reconnecting_connection import ReconnectingConnection

STATUS_INTERVAL_S = 5.0
# After a failure. The locks last for two more thirds.
RETRY_S = 0.5
# For a report that is on its way, and again for the thread.
STOP_TIMEOUT_S = 10.0


class ClaimHeartbeat(threading.Thread):
    """The heartbeat of one stream.

    Args:
        connection: a connection of its own that does not retry: after a beat that fails the next one extends the same locks.
        in_flight: what to extend. What comes back as held no more leaves it.
        lock: for how long; None = as the topics have it.
        report_status: writes the worker's status through the connection.
    """

    def __init__(
        self,
        connection: ReconnectingConnection,
        in_flight: MessagesInFlight,
        lock: timedelta | None,
        report_status: Callable[[ClaimClient], Any],
    ) -> None:
        super().__init__(name="pgrouse-heartbeat", daemon=True)
        self._connection, self._in_flight, self._lock, self._report_status = connection, in_flight, lock, report_status
        self._wake = threading.Event()
        # A report registers a worker that the registry does not know, so none may follow after the worker has left.
        self._reporting = threading.Lock()
        self._stopping = False
        self._reported_at = -STATUS_INTERVAL_S
        self._failing = False

    def reschedule(self) -> None:
        """Recompute when the next beat is due: messages were added."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread, and wait for it. No report begins any more, even if the thread needs longer than this waits."""
        is_free = self._reporting.acquire(timeout=STOP_TIMEOUT_S)
        self._stopping = True
        if is_free:
            self._reporting.release()
        self._wake.set()
        self.join(STOP_TIMEOUT_S)

    def run(self) -> None:
        """Beat until stopped. This is the one place where its failures are handled: the next beat tries again."""
        while not self._stopping:
            try:
                self.beat()
                self._failing = False
            except (Error, DatabaseUnreachable, OSError):
                self._failing = True
            self._wake.wait(self._pause_s())
            self._wake.clear()
        self._connection.close()

    def beat(self) -> None:
        """Extend what is due, and report the worker's status if that is due."""
        if due := self._in_flight.due():
            self._in_flight.remove(self._connection.run(lambda client: client.heartbeat(due, self._lock)))
        self._in_flight.mark_extended()
        if time.monotonic() - self._reported_at >= STATUS_INTERVAL_S:
            self._report()

    def _report(self) -> None:
        with self._reporting:
            if not self._stopping:
                self._connection.run(self._report_status)
        self._reported_at = time.monotonic()

    def _pause_s(self) -> float:
        if self._failing:
            return RETRY_S
        status_due_in_s = max(0.0, self._reported_at + STATUS_INTERVAL_S - time.monotonic())
        beat_due_in_s = self._in_flight.due_in_s()
        return status_due_in_s if beat_due_in_s is None else min(status_due_in_s, beat_due_in_s)
