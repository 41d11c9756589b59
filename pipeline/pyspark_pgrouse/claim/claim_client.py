"""The SQL functions that a consumer on Spark calls, on one connection, without any decisions."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from psycopg.errors import LockNotAvailable

from pgrouse.client.call import Call, run
from pgrouse.client.calls.processing.claim import claim, count_ready
from pgrouse.client.calls.processing.mutex import lock_consumer
from pgrouse.client.calls.processing.run import claimed_ids, heartbeat, read_claimed
from pgrouse.client.calls.processing.settle import release, release_orphaned
from pgrouse.client.calls.processing.worker import register_worker, touch_worker, unregister_worker
from pgrouse.client.message import Message
from pgrouse.client.queries.worker import find_worker
from pgrouse.errors import PgrouseError
from pyspark_pgrouse.claim.claim_ref import ClaimRef, chunks, unzip

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

# The maximum that one call claims. A bigger batch needs more calls.
CLAIM_ROWS = 10_000
CLAIM_BYTES = 16 * 1024 * 1024
# The maximum for one transaction: it holds the locks of all of its rows until it ends.
SETTLE_ROWS = 10_000

# When a job follows another one at once, the old job still has the name until it has released its messages.
NAME_TIMEOUT_S = 20.0
# How long to wait before asking again for a name that another session has.
NAME_RETRY_S = 0.1
# How long a worker waits to be registered while it has locks to extend.
LOCK_TIMEOUT = "SET LOCAL lock_timeout = '2s'"


class ConsumerTaken(PgrouseError):
    """Another job uses this consumer name."""


class ClaimedRow(NamedTuple):
    """One claimed message. `bytes` is the size of its payload or body as text."""

    id: int
    claim_id: int
    topic: str
    channel: str | None
    lock_duration_s: float
    timeout_s: float | None
    bytes: int


CLAIMED_COLUMNS = (
    b"f.id, f.claim_id, f.topic, f.channel, f.lock_duration_s, f.timeout_s,"
    b" coalesce(pg_catalog.octet_length(f.payload), 0) + coalesce(pg_catalog.octet_length(f.body), 0)"
)


class MessageTimeout(NamedTuple):
    """A message that is held, and how long its handler may run, in seconds; None = no limit."""

    id: int
    timeout_s: float | None


@dataclass(frozen=True)
class ClaimCursor:
    """Where the last claim ended.

    The next claim continues there, so that many messages in one topic or channel delay the others little.
    """

    topic: str | None = None
    channels: tuple[tuple[str, str], ...] = ()

    def after(self, claimed: Sequence[ClaimedRow]) -> ClaimCursor:
        """Return the cursor after these."""
        channels = dict(self.channels) | {c.topic: c.channel for c in claimed if c.channel is not None}
        return ClaimCursor(claimed[-1].topic if claimed else self.topic, tuple(channels.items()))


class ClaimClient:
    """The functions on one connection.

    Args:
        conn: an autocommit connection. A settlement is durable when the call returns: nothing repeats it.
        worker: the name of the worker.
    """

    def __init__(self, conn: psycopg.Connection[Any], worker: str) -> None:
        self.conn = conn
        self.worker = worker

    def claim(
        self, topics: Sequence[str], rows: int, size: int, lock: timedelta | None, cursor: ClaimCursor
    ) -> list[ClaimedRow]:
        """Claim once: at most this many rows, and at most this many bytes, which the last row may exceed."""
        claimed = claim(
            self.worker,
            topics,
            rows,
            bytes=size,
            lock_duration=lock,
            after_topic=cursor.topic,
            after_channels=json.dumps(dict(cursor.channels)) if cursor.channels else None,
        )
        return run(self.conn, _only(ClaimedRow, CLAIMED_COLUMNS, claimed))

    def held(self, claims: Sequence[int]) -> list[tuple[int, int]]:
        """Return id and claim of the messages that these claims still hold."""
        return [(each.id, each.claim_id) for each in run(self.conn, claimed_ids(claims))]

    def timeouts(self, held: Sequence[ClaimRef]) -> list[MessageTimeout]:
        """Return the timeouts of the messages that are still held. For this the server also reads their payloads."""
        return run(self.conn, _only(MessageTimeout, b"f.id, f.timeout_s", read_claimed(*unzip(held))))

    def heartbeat(self, held: Sequence[tuple[int, int]], lock: timedelta | None) -> list[int]:
        """Extend locks; return the ids that are no longer held."""
        return [id_ for part in chunks(held, SETTLE_ROWS) for id_ in run(self.conn, heartbeat(*part, lock))]

    def release(self, held: Sequence[tuple[int, int]]) -> list[int]:
        """Release messages; return the ids whose lock was lost.

        They had begun: the run stays counted, and the attempt is not used up.
        """
        return [
            id_
            for ids, claim_ids in chunks(held, SETTLE_ROWS)
            for id_ in run(self.conn, release(ids, claim_ids, [True] * len(ids)))
        ]

    def release_orphaned(self, known: Sequence[tuple[int, int]]) -> int:
        """Release the messages that this worker has locked and does not know of; return their number."""
        return len(run(self.conn, release_orphaned(self.worker, unzip(known)[0])))

    def count_ready(self, topics: Sequence[str]) -> int:
        """Return how many messages of these topics are ready."""
        return run(self.conn, count_ready(topics))

    def enter(self, topics: Sequence[str], rows: int, name_timeout_s: float) -> bool:
        """Take the worker's name for as long as the connection lasts, and register it; return as `register` does.

        Raises:
            ConsumerTaken: another job uses this name.
        """
        if not self.take_name(name_timeout_s):
            who = self.holder()
            at = f" in process {who[1]} on {who[0]}" if who else ""
            raise ConsumerTaken(
                f"consumer {self.worker} works already{at}: stop that one, or give this one another name (consumer)"
            )
        return self.register(topics, rows)

    def register(self, topics: Sequence[str], rows: int) -> bool:
        """Register the worker; return whether that succeeded: another session may hold its row in the registry."""
        host, ours = socket.gethostname(), version("pgrouse")
        try:
            with self.conn.transaction():
                self.conn.execute(LOCK_TIMEOUT)
                run(self.conn, register_worker(self.worker, host, os.getpid(), ours, topics, rows))
        except LockNotAvailable:
            return False
        return True

    def report_status(self, status: dict[str, Any]) -> bool:
        """Write the worker's status, which tells others that it reads no requests.

        Return whether the worker is registered.
        """
        return run(self.conn, touch_worker(self.worker, json.dumps({"engine": "spark"} | status)))

    def deregister(self) -> None:
        """Remove the worker from the registry."""
        run(self.conn, unregister_worker(self.worker))

    def take_name(self, within_s: float) -> bool:
        """Take the worker's name for as long as the connection lasts.

        Return whether that succeeded within this many seconds.
        """
        deadline = time.monotonic() + within_s
        while not run(self.conn, lock_consumer(self.worker)):
            if time.monotonic() > deadline:
                return False
            time.sleep(NAME_RETRY_S)
        return True

    def holder(self) -> tuple[str, int] | None:
        """Return host and process of the worker with this name, from the registry."""
        found = run(self.conn, find_worker(self.worker))
        return (found.host, found.pid) if found else None


def claim_up_to(claim: Callable[[int, int], list[ClaimedRow]], rows: int, max_bytes: int = 0) -> list[ClaimedRow]:
    """Claim repeatedly until there are this many messages, or no more.

    Args:
        claim: claims once: at most this many messages, and this many bytes.
        rows: the maximum number of messages.
        max_bytes: the maximum size of their payloads and bodies, which the last message may exceed; 0 = no limit.
    """
    claimed: list[ClaimedRow] = []
    most, size = max_bytes or math.inf, 0
    while len(claimed) < rows and size < most:
        wanted, limit = min(rows - len(claimed), CLAIM_ROWS), int(min(most - size, CLAIM_BYTES))
        part = claim(wanted, limit)
        claimed += part
        got = sum(each.bytes for each in part)
        size += got
        # There were fewer than wanted, and not because of their size: there are no more, or a limit holds them back.
        if len(part) < wanted and got < limit:
            break
    return claimed


def _only(row: Callable[..., T], columns: bytes, call: Call[list[Message]]) -> Call[list[T]]:
    """Return a call that returns messages with only these columns, so that only they leave the server."""
    statement = b"SELECT " + columns + b" FROM (" + call.statement + b") AS f"
    return Call(statement, call.values, lambda rows: [row(*each) for each in rows])
