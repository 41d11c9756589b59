"""The SQL functions that a claim stream calls, on one connection; no decisions."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_pgrouse.claim.in_flight import ClaimRefs, chunks

if TYPE_CHECKING:
    import psycopg

# What one call claims at most. More calls make a bigger batch.
CLAIM_ROWS = 10_000
CLAIM_BYTES = 16 * 1024 * 1024
# Between two of these others may take a row's lock: a transaction that settles holds all of its own until it ends.
SETTLE_ROWS = 10_000

CLAIM = """
    SELECT c.id, c.claim_id, c.topic, c.channel, c.lock_duration_s, c.timeout_s,
           coalesce(octet_length(c.payload), 0) + coalesce(octet_length(c.body), 0)
    FROM messages.claim(
      %(worker)s, %(topics)s::text[], %(rows)s, p_bytes => %(bytes)s, p_lock_duration => %(lock)s,
      p_after_topic => %(after_topic)s, p_after_channels => %(after_channels)s::jsonb) AS c
"""
HELD_IDS = "SELECT h.id, h.claim_id FROM messages.claimed_ids(%s::bigint[]) AS h"
LOCK_TIMES = "SELECT h.id, h.claim_id, h.lock_duration_s, h.timeout_s FROM messages.read_claimed(%s::bigint[], %s::bigint[]) AS h"
HEARTBEAT = "SELECT messages.heartbeat(%s::bigint[], %s::bigint[], %s)"
COMPLETE = "SELECT messages.complete(%s::bigint[], %s::bigint[])"
# They had begun: the run stays counted, the attempt is given back.
RELEASE = "SELECT messages.release(%(ids)s::bigint[], %(claims)s::bigint[], array_fill(true, ARRAY[cardinality(%(ids)s::bigint[])]))"
RELEASE_ORPHANED = "SELECT cardinality(messages.release_orphaned(%s, %s::bigint[]))"
COUNT_READY = "SELECT messages.count_ready(%s::text[])"
REGISTER = "SELECT messages.register_worker(%s, %s, %s, %s, %s::text[], %s)"
REPORT_STATUS = "SELECT messages.touch_worker(%s, %s::jsonb)"
HAS_STATUS = "SELECT EXISTS (SELECT FROM messages.worker AS w WHERE w.name = %s AND w.status -> 'claims' = %s::jsonb)"
DEREGISTER = "SELECT messages.unregister_worker(%s)"
NAME_LOCK = "SELECT messages.lock_consumer(%s)"
# How long until a name that another session has is asked for again.
NAME_RETRY_S = 0.1
HOLDER = "SELECT w.host, w.pid FROM messages.worker AS w WHERE w.name = %s"


class ClaimedMessage(NamedTuple):
    """One message that was claimed. `bytes` are those of its payload or body as text."""

    id: int
    claim_id: int
    topic: str
    channel: str | None
    lock_duration_s: float
    timeout_s: float | None
    bytes: int


@dataclass(frozen=True)
class ClaimCursor:
    """Where the last claim ended: the next one goes on from there, so that a flood in one topic or channel delays the others little."""

    topic: str | None = None
    channels: tuple[tuple[str, str], ...] = ()

    def after(self, claimed: Sequence[ClaimedMessage]) -> ClaimCursor:
        """Return the cursor behind these."""
        channels = dict(self.channels) | {c.topic: c.channel for c in claimed if c.channel is not None}
        return ClaimCursor(claimed[-1].topic if claimed else self.topic, tuple(channels.items()))


class ClaimClient:
    """The functions on one connection.

    Args:
        conn: an autocommit connection. All that is said here is durable when it returns: a claim because the checkpoint names it soon
            (nothing breaks if it is lost with the server, but a whole batch would run for nothing), a settle because nothing will
            repeat it.
        worker: the name under which it works.
    """

    def __init__(self, conn: psycopg.Connection[Any], worker: str) -> None:
        self.conn = conn
        self.worker = worker

    def claim(
        self, topics: Sequence[str], rows: int, size: int, lock: timedelta | None, cursor: ClaimCursor
    ) -> list[ClaimedMessage]:
        """Claim once: at most so many rows, and bytes as far as one row reaches beyond them."""
        values = {
            "worker": self.worker,
            "topics": list(topics),
            "rows": rows,
            "bytes": size,
            "lock": lock,
            "after_topic": cursor.topic,
            "after_channels": json.dumps(dict(cursor.channels)) if cursor.channels else None,
        }
        return [ClaimedMessage(*row) for row in self.conn.execute(CLAIM, values)]

    def held(self, claims: Sequence[int]) -> list[tuple[int, int]]:
        """Return id and claim of what is still under these claims."""
        return self.conn.execute(HELD_IDS, [list(claims)]).fetchall()

    def lock_times(self, refs: ClaimRefs) -> list[tuple[int, int, float, float | None]]:
        """Return id, claim, lock and timeout in seconds of those that are still held."""
        return self.conn.execute(LOCK_TIMES, [refs.ids, refs.claims]).fetchall()

    def heartbeat(self, held: Sequence[tuple[int, int]], lock: timedelta | None) -> list[int]:
        """Extend locks; return the ids that are held no more."""
        return [
            id_ for part in chunks(held, SETTLE_ROWS) for id_ in self._value(HEARTBEAT, [part.ids, part.claims, lock])
        ]

    def complete(self, held: Sequence[tuple[int, int]]) -> list[int]:
        """Say that messages are done; return the ids whose lock was lost."""
        return [id_ for part in chunks(held, SETTLE_ROWS) for id_ in self._value(COMPLETE, [part.ids, part.claims])]

    def release(self, held: Sequence[tuple[int, int]]) -> list[int]:
        """Give messages back; return the ids whose lock was lost."""
        return [
            id_
            for part in chunks(held, SETTLE_ROWS)
            for id_ in self._value(RELEASE, {"ids": part.ids, "claims": part.claims})
        ]

    def release_orphaned(self, known: Sequence[tuple[int, int]]) -> int:
        """Give back what this worker has locked and does not know of; return how many."""
        return int(self._value(RELEASE_ORPHANED, [self.worker, ClaimRefs.of(known).ids]))

    def count_ready(self, topics: Sequence[str]) -> int:
        """Return how many messages of these topics are ready."""
        return int(self._value(COUNT_READY, [list(topics)]))

    def register(self, version: str, topics: Sequence[str], rows: int) -> None:
        """Register the worker."""
        self.conn.execute(REGISTER, [self.worker, socket.gethostname(), os.getpid(), version, list(topics), rows])

    def report_status(self, status: dict[str, Any]) -> bool:
        """Write the worker's status; return whether the worker is registered."""
        return bool(self._value(REPORT_STATUS, [self.worker, json.dumps(status)]))

    def has_status(self, claims: Sequence[int]) -> bool:
        """Return whether the worker's status in the registry lists these claims."""
        return bool(self._value(HAS_STATUS, [self.worker, json.dumps(list(claims))]))

    def deregister(self) -> None:
        """Remove the worker from the registry."""
        self.conn.execute(DEREGISTER, [self.worker])

    def take_name(self, within_s: float) -> bool:
        """Take the worker's name for as long as the connection lasts; return whether it could be had within so many seconds."""
        deadline = time.monotonic() + within_s
        while not self._value(NAME_LOCK, [self.worker]):
            if time.monotonic() > deadline:
                return False
            time.sleep(NAME_RETRY_S)
        return True

    def holder(self) -> tuple[str, int] | None:
        """Return host and process of who works under this name, as the registry has it."""
        return self.conn.execute(HOLDER, [self.worker]).fetchone()

    def _value(self, query: str, values: Any) -> Any:
        row = self.conn.execute(query.encode(), values).fetchone()
        return None if row is None else row[0]
