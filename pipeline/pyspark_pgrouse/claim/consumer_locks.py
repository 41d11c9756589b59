"""Holds what a `consume` has claimed: a process of its own, beside the driver, that outlives it.

It has the name of the consumer, keeps it in the registry, extends locks while a batch runs, and gives back what is held when its input
ends: because the job has ended, or because it was killed. So a killed job uses up no attempts; only if this process is killed with it, do
the locks expire. It gets lines of JSON: the settings, then what is held, each time that changes.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TextIO

from psycopg import Error

from pgrouse.config import dsn as dsns
from pgrouse.errors import DatabaseUnreachable, PgrouseError
from pyspark_pgrouse import connection
from pyspark_pgrouse.claim.claim_client import ClaimClient
from pyspark_pgrouse.claim.heartbeat import ClaimHeartbeat
from pyspark_pgrouse.claim.in_flight import SHARE_OF_LOCK, MessagesInFlight
from pyspark_pgrouse.claim.reconnecting_connection import ReconnectingConnection

# How often the connection that has the name is used: if it breaks, the name is taken again.
NAME_CHECK_S = 5.0
# After a kill, tasks may still claim, until Spark has ended them.
LATE_CLAIMS_S = 3.0


@dataclass(frozen=True)
class HeldClaims:
    """What a consumer holds. `lock_duration_s`: the shortest lock; `done`: how many messages it has worked since its start."""

    claims: tuple[int, ...] = ()
    messages: int = 0
    lock_duration_s: float = 0
    done: int = 0


@dataclass(frozen=True)
class ConsumerRegistration:
    """Who works what. `rows`: of a batch, at most; `lock_s`: None = as the topics have it."""

    consumer: str
    topics: tuple[str, ...]
    rows: int
    dsn: str | None = field(default=None, repr=False)
    lock_s: float | None = None


class ConsumerLocks:
    """The locks of one consumer.

    Args:
        registration: who works what.
    """

    def __init__(self, registration: ConsumerRegistration) -> None:
        self._registration = registration
        self._held = HeldClaims()
        self._extend_from: float | None = None
        self._lock = None if registration.lock_s is None else timedelta(seconds=registration.lock_s)
        self._in_flight = MessagesInFlight()
        self._connection = ReconnectingConnection(self._connect_registered)
        self._heartbeat = ClaimHeartbeat(
            ReconnectingConnection(self._connect, 0), self._in_flight, self._lock, self._report_status
        )

    def start(self) -> None:
        """Take the name, enter the registry, and start to report.

        Raises:
            ConsumerTaken: another one has the name.
            DatabaseUnreachable: with the reason.
        """
        self._connection.run(lambda _: None)
        self._heartbeat.start()

    def hold(self, held: HeldClaims) -> None:
        """Take note of what is held from now on. Most batches end before their locks are extended, so the ids are not asked for yet."""
        self._in_flight.remove_claims(self._held.claims)
        self._held = held
        self._extend_from = time.monotonic() + held.lock_duration_s / SHARE_OF_LOCK if held.claims else None

    def tend(self) -> None:
        """Extend the locks of what is held, once a third of them is over; make sure that the name is held."""
        self._connection.run(lambda client: client.conn.execute("SELECT"))
        if self._extend_from is not None and time.monotonic() >= self._extend_from:
            self._extend_from = None
            self._connection.run(self._extend)

    def due_in_s(self) -> float:
        """Return after how many seconds `tend` is to be called."""
        if self._extend_from is None:
            return NAME_CHECK_S
        return min(NAME_CHECK_S, max(0.0, self._extend_from - time.monotonic()))

    def release(self, *, ended: bool) -> None:
        """Give back what is held, and leave the registry. ended: whether the job said so; else its tasks may still claim."""
        with suppress(RuntimeError):
            self._heartbeat.stop()
        self._connection.run(self._release)
        if not ended:
            time.sleep(LATE_CLAIMS_S)
            self._connection.run(lambda client: client.release_orphaned([]))
        self._connection.run(ClaimClient.deregister)
        self._connection.close()

    def _release(self, client: ClaimClient) -> None:
        client.release(client.held(self._held.claims))
        # What a task had claimed, and not reported yet.
        client.release_orphaned([])

    def _extend(self, client: ClaimClient) -> None:
        """Extend what the batch still holds, and let the heartbeat go on with it. Its timeouts count from here."""
        held = client.held(self._held.claims)
        lost = set(client.heartbeat(held, self._lock))
        times = client.lock_times([ref for ref in held if ref[0] not in lost])
        self._in_flight.add((each.id, each.claim_id, self._held.lock_duration_s, each.timeout_s) for each in times)
        self._heartbeat.reschedule()

    def _connect(self, _again: bool) -> ClaimClient:
        return ClaimClient(connection.connect(self._registration.dsn), self._registration.consumer)

    def _connect_registered(self, again: bool) -> ClaimClient:
        client = self._connect(again)
        try:
            client.enter(self._registration.topics, self._registration.rows)
        except BaseException:
            client.conn.close()
            raise
        return client

    def _report_status(self, client: ClaimClient) -> Any:
        status = {"in_flight": self._held.messages, "done": self._held.done}
        if not client.report_status(status):
            client.register(self._registration.topics, self._registration.rows)
            client.report_status(status)


def main() -> None:
    """Serve one job: its lines are the standard input, which ends with it."""
    # Systemd sends these to all processes of a service that it stops, and the job works its last batch to the end.
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    given = json.loads(sys.stdin.readline())
    registration = ConsumerRegistration(**given | {"topics": tuple(given["topics"])})
    locks = ConsumerLocks(registration)
    try:
        locks.start()
    except (PgrouseError, Error) as error:
        text = dsns.redact(str(error), dsns.secrets(registration.dsn))
        _answer({"error": type(error).__name__, "text": text})
        return
    _answer({"error": None})
    ended = _serve(locks)
    # Without the server they expire.
    with suppress(DatabaseUnreachable, Error):
        locks.release(ended=ended)


def _serve(locks: ConsumerLocks) -> bool:
    """Follow the lines to their end; return whether the last one said that it is."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, lines), daemon=True).start()
    for line in _lines(lines, locks):
        if not line:
            return False
        given = json.loads(line)
        if given.get("ended"):
            return True
        locks.hold(HeldClaims(**given | {"claims": tuple(given["claims"])}))
    return False


def _lines(lines: queue.SimpleQueue[str], locks: ConsumerLocks) -> Iterator[str]:
    """Yield lines as they come, and tend to the locks between them. An empty one is the end."""
    while True:
        try:
            yield lines.get(timeout=locks.due_in_s())
        except queue.Empty:
            # A server that is away for too long: the locks expire there anyway, and the name is taken again when it is back.
            with suppress(DatabaseUnreachable, Error):
                locks.tend()


def _read(stream: TextIO, lines: queue.SimpleQueue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    # Nothing else is said here, and the job may be gone.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
