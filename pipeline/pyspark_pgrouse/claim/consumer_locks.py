"""Holds the messages that a `consume` has claimed, in a separate process that outlives the driver.

The process has the name of the consumer, keeps it in the registry, and extends locks while a batch runs. It releases
the held messages when its input ends, because the job has ended or was killed. So a killed job uses up no attempts;
locks expire only if this process is killed too. Its input is lines of JSON: first the options, then the held messages
each time they change.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, TextIO

from psycopg import Error

from pgrouse.config import dsn as dsns
from pgrouse.database.database_errors import silence_driver
from pgrouse.errors import DatabaseUnreachable, PgrouseError
from pyspark_pgrouse.claim.claim_client import NAME_TIMEOUT_S, ClaimClient, ConsumerTaken
from pyspark_pgrouse.claim.claim_ref import ClaimRef
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions
from pyspark_pgrouse.claim.reconnecting_connection import ReconnectingConnection
from pyspark_pgrouse.connection import connection
from pyspark_pgrouse.connection.queue_dsn import queue_dsn, schema_of

# Locks are extended at a third of the shortest one.
SHARE_OF_LOCK = 3
# The delay after a failure. The locks last for two more thirds.
RETRY_S = 0.5
# A report also shows that the connection that has the name still exists: if it broke, the name is taken again.
STATUS_INTERVAL_S = 5.0
# The lines that arrived, each with its time by `time.monotonic`.
Lines = queue.SimpleQueue[tuple[float, str]]
# After a kill or an error, tasks may still claim: Spark checks every 2 s whether a task must end, and kills its process
# 2 s later.
LATE_CLAIMS_S = 5.0


@dataclass(frozen=True)
class HeldClaims:
    """The messages that a consumer holds.

    Attributes:
        claims: the numbers of their claims.
        messages: how many it has claimed with them.
        lock_duration_s: the shortest lock.
        timeout_s: the shortest timeout of the messages, their own or that of their topics; None = none has one.
        age_s: how long ago the first of them was claimed, at most: a fast task waits for the others.
        done: how many messages it has processed since its start.
    """

    claims: tuple[int, ...] = ()
    messages: int = 0
    lock_duration_s: float = 0
    timeout_s: float | None = None
    age_s: float = 0
    done: int = 0


class ConsumerLocks:
    """The locks of one consumer.

    Args:
        options: of the consumer.
        name_timeout_s: how long it waits at its start for a name that another process has.
    """

    def __init__(self, options: ConsumerOptions, name_timeout_s: float = NAME_TIMEOUT_S) -> None:
        self._options = options
        # Use two connections: while one takes the name again, which it tries briefly at each report, the other one
        # extends locks.
        self._named = ReconnectingConnection(self._connect_registered, RETRY_S)
        self._connection = ReconnectingConnection(self._connect, was_there=True)
        self._is_registered = False
        self._timeouts: dict[int, float | None] | None = None
        self._held = HeldClaims()
        self._held_since = self._extend_at = self._report_at = 0.0
        self._name_timeout_s = name_timeout_s

    def start(self) -> None:
        """Take the name, and enter the registry.

        Raises:
            ConsumerTaken: another process has the name.
            DatabaseUnreachable: with the reason.
        """
        self._named.run(lambda _: None)
        # From now on there are locks to extend, so do not wait for the name.
        self._name_timeout_s = 0.0

    def hold(self, held: HeldClaims, received_at: float) -> None:
        """Record the messages that are held from now on; received_at: when the line arrived, by `time.monotonic`."""
        self._held, self._timeouts = held, None
        self._held_since = received_at - held.age_s
        self._extend_at = self._held_since + held.lock_duration_s / SHARE_OF_LOCK

    def tend(self) -> None:
        """Extend the locks of the held messages, and report the status, if these are due."""
        now = time.monotonic()
        if self._held.claims and now >= self._extend_at:
            self._extend_at = now + RETRY_S
            self._connection.run(self._extend)
            self._extend_at = time.monotonic() + self._held.lock_duration_s / SHARE_OF_LOCK
        if now >= self._report_at:
            self._report_at = now + STATUS_INTERVAL_S
            self._named.run(self._report_status)

    def due_in_s(self) -> float:
        """Return after how many seconds `tend` must be called."""
        due_at = min(self._report_at, self._extend_at) if self._held.claims else self._report_at
        return max(0.0, due_at - time.monotonic())

    def release(self, *, ended: bool) -> None:
        """Release the held messages, and leave the registry.

        ended: whether the job reported its end; otherwise its tasks may still claim.

        If a step fails, the locks of its messages expire, and the other steps continue.
        """
        self._attempt(self._connection, lambda client: client.release(client.held(self._held.claims)))
        # Release messages that a task had claimed and not reported yet. This goes by name, so this process must have
        # the name.
        self._attempt(self._named, lambda client: client.release_orphaned([]))
        if not ended:
            time.sleep(LATE_CLAIMS_S)
            self._attempt(self._named, lambda client: client.release_orphaned([]))
        self._attempt(self._named, ClaimClient.deregister)

    def _attempt(self, on: ReconnectingConnection, step: Callable[[ClaimClient], Any]) -> None:
        with suppress(PgrouseError, Error):
            on.run(step)

    def close(self) -> None:
        """Close the connections."""
        for each in (self._named, self._connection):
            each.close()

    def is_taken(self) -> bool:
        """Whether another process has the name.

        An old session of this process, whose death the server has not noticed, does not count.
        """
        holder = self._connection.run(ClaimClient.holder)
        return holder is not None and holder != (socket.gethostname(), os.getpid())

    def _extend(self, client: ClaimClient) -> None:
        """Extend the messages that the batch still holds.

        Their ids are read only here, because most batches end before.
        """
        held = client.held(self._held.claims)
        client.heartbeat(self._within_timeouts(client, held), self._options.lock)

    def _within_timeouts(self, client: ClaimClient, held: list[ClaimRef]) -> list[ClaimRef]:
        """Leave out messages that exceed the timeout of their topic: their locks expire."""
        held_for_s = time.monotonic() - self._held_since
        if self._held.timeout_s is None or held_for_s < self._held.timeout_s:
            return held
        if self._timeouts is None:
            self._timeouts = dict(client.timeouts(held))
        return [ref for ref in held if (limit := self._timeouts.get(ref[0])) is None or held_for_s < limit]

    def _connect(self) -> ClaimClient:
        return ClaimClient(connection.connect(self._options.dsn), self._options.consumer)

    def _connect_registered(self) -> ClaimClient:
        client = self._connect()
        try:
            self._is_registered = client.enter(self._options.topics, self._options.rows, self._name_timeout_s)
        except BaseException:
            client.conn.close()
            raise
        return client

    def _report_status(self, client: ClaimClient) -> None:
        status = {"in_flight": self._held.messages, "done": self._held.done}
        if not (self._is_registered and client.report_status(status)):
            self._is_registered = client.register(self._options.topics, self._options.rows)
            client.report_status(status)


def main() -> None:
    """Serve one job: its lines are the standard input, which ends with the job."""
    # Systemd sends these to all processes of a service that it stops, and the job completes its last batch.
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    silence_driver()
    job = os.getppid()
    options, name_timeout_s = _options(sys.stdin.readline())
    locks = ConsumerLocks(options, name_timeout_s)
    try:
        locks.start()
    except (PgrouseError, Error) as error:
        text = dsns.redact(str(error), dsns.secrets(options.dsn))
        _answer({"error": type(error).__name__, "text": text})
        return
    _answer({"error": None})
    ended = False
    try:
        with suppress(ConsumerTaken):
            ended = _serve(locks, job)
    finally:
        locks.release(ended=ended)
        locks.close()


def options_line(options: ConsumerOptions, name_timeout_s: float) -> dict[str, Any]:
    """Return the first line, with the options."""
    return asdict(options) | {
        "lock": options.lock and options.lock.total_seconds(),
        "schema": schema_of(options.dsn).name,
        "name_timeout_s": name_timeout_s,
    }


def _options(line: str) -> tuple[ConsumerOptions, float]:
    """Return the options of a first line, and how long to wait for the name."""
    given = json.loads(line)
    name_timeout_s, dsn = given.pop("name_timeout_s"), queue_dsn(given["dsn"], given.pop("schema"))
    lock = None if given["lock"] is None else timedelta(seconds=given["lock"])
    return ConsumerOptions(**given | {"dsn": dsn, "topics": tuple(given["topics"]), "lock": lock}), name_timeout_s


def _serve(locks: ConsumerLocks, job: int) -> bool:
    """Process the lines to their end; return whether the last line reported the end of the job."""
    lines: Lines = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, lines), daemon=True).start()
    for received_at, line in _lines(lines, locks, job):
        if not line:
            return False
        given = json.loads(line)
        if "ended" in given:
            return bool(given["ended"])
        locks.hold(HeldClaims(**given | {"claims": tuple(given["claims"])}), received_at)
    return False


def _lines(lines: Lines, locks: ConsumerLocks, job: int) -> Iterator[tuple[float, str]]:
    """Yield lines as they come, and tend to the locks between them.

    An empty line is the end; job: the process that sends them.
    """
    # A forked child of the job may hold the job's end of the input.
    while os.getppid() == job:
        try:
            yield lines.get(timeout=locks.due_in_s())
        except queue.Empty:
            _tend(locks)
    yield time.monotonic(), ""


def _tend(locks: ConsumerLocks) -> None:
    """Tend to the locks.

    Raises:
        ConsumerTaken: the connection with the name was lost, and another process has taken the name.
    """
    # If the server is away for too long, the locks expire, and the name is taken again when the server is back.
    with suppress(DatabaseUnreachable, Error):
        try:
            locks.tend()
        except ConsumerTaken:
            if locks.is_taken():
                raise


def _read(stream: TextIO, lines: Lines) -> None:
    for line in stream:
        lines.put((time.monotonic(), line))
    lines.put((time.monotonic(), ""))


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    # Nothing else is written here, and the job may be gone.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
