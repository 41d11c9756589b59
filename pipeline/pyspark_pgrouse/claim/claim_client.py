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

from pyspark_pgrouse.claim.in_flight import Pairs, chunks

if TYPE_CHECKING:
    import psycopg

# What one call claims at most. More calls make a bigger batch.
CLAIM_ROWS = 10_000
CLAIM_BYTES = 16 * 1024 * 1024
# Between two of these others may take a row's lock: a transaction that settles holds all of its own until it ends.
SETTLE_ROWS = 10_000

CLAIM = """
    SELECT c.id, c.claim_id, c.topic, c.channel, c.lock_for_s, c.run_timeout_s,
           coalesce(octet_length(c.payload), 0) + coalesce(octet_length(c.body), 0)
    FROM messages.claim(
      %(worker)s, %(topics)s::text[], %(rows)s, p_bytes => %(bytes)s, p_lock_for => %(lock)s,
      p_after_topic => %(after_topic)s, p_after_channels => %(after_channels)s::jsonb) AS c
"""
HELD_IDS = "SELECT h.id, h.claim_id FROM messages.held_ids(%s::bigint[]) AS h"
SHOWN = "SELECT h.id, h.claim_id, h.lock_for_s, h.run_timeout_s FROM messages.held(%s::bigint[], %s::bigint[]) AS h"
HEARTBEAT = "SELECT messages.heartbeat(%s::bigint[], %s::bigint[], %s)"
COMPLETE = "SELECT messages.complete(%s::bigint[], %s::bigint[])"
# They had begun: the run stays counted, the attempt is given back.
RELEASE = "SELECT messages.release(%(ids)s::bigint[], %(claims)s::bigint[], array_fill(true, ARRAY[cardinality(%(ids)s::bigint[])]))"
FORGOTTEN = "SELECT cardinality(messages.release_forgotten(%s, %s::bigint[]))"
COUNT_READY = "SELECT messages.count_ready(%s::text[])"
STARTED = "SELECT messages.worker_started(%s, %s, %s, %s, %s::text[], %s)"
SEEN = "SELECT messages.worker_seen(%s, %s::jsonb)"
SAYS = "SELECT EXISTS (SELECT FROM messages.worker AS w WHERE w.name = %s AND w.status -> 'claims' = %s::jsonb)"
STOPPED = "SELECT messages.worker_stopped(%s)"
NAME_LOCK = "SELECT messages.lock_consumer(%s)"
# How long until a name that another session has is asked for again.
NAME_AGAIN_S = 0.1
HOLDER = "SELECT w.host, w.pid FROM messages.worker AS w WHERE w.name = %s"


class Claimed(NamedTuple):
    """One message that was claimed. `bytes` are those of its payload or body as text."""

    id: int
    claim_id: int
    topic: str
    channel: str | None
    lock_for_s: float
    run_timeout_s: float | None
    bytes: int


@dataclass(frozen=True)
class Place:
    """Where the last claim ended: the next one goes on from there, so that a flood in one topic or channel delays the others little."""

    topic: str | None = None
    channels: tuple[tuple[str, str], ...] = ()

    def after(self, claimed: Sequence[Claimed]) -> Place:
        """Return the place behind these."""
        channels = dict(self.channels) | {c.topic: c.channel for c in claimed if c.channel is not None}
        return Place(claimed[-1].topic if claimed else self.topic, tuple(channels.items()))


class ClaimStore:
    """The functions on one connection.

    Args:
        conn: an autocommit connection. All that is said here is durable when it returns: a claim because the checkpoint names it soon
            (nothing breaks if it is lost with the server, but a whole batch would run for nothing), a settle because nobody will
            repeat it.
        worker: the name under which it works.
    """

    def __init__(self, conn: psycopg.Connection[Any], worker: str) -> None:
        self.conn = conn
        self.worker = worker

    def claim(self, topics: Sequence[str], rows: int, size: int, lock: timedelta | None, place: Place) -> list[Claimed]:
        """Claim once: at most so many rows, and bytes as far as one row reaches beyond them."""
        values = {
            "worker": self.worker,
            "topics": list(topics),
            "rows": rows,
            "bytes": size,
            "lock": lock,
            "after_topic": place.topic,
            "after_channels": json.dumps(dict(place.channels)) if place.channels else None,
        }
        return [Claimed(*row) for row in self.conn.execute(CLAIM, values)]

    def held(self, claims: Sequence[int]) -> list[tuple[int, int]]:
        """Return id and claim of what is still under these claims."""
        return self.conn.execute(HELD_IDS, [list(claims)]).fetchall()

    def shown(self, pairs: Pairs) -> list[tuple[int, int, float, float | None]]:
        """Return id, claim, lock and run_timeout in seconds of those that are still held."""
        return self.conn.execute(SHOWN, [pairs.ids, pairs.claims]).fetchall()

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

    def release_forgotten(self, known: Sequence[tuple[int, int]]) -> int:
        """Give back what this worker has locked and does not know of; return how many."""
        return int(self._value(FORGOTTEN, [self.worker, Pairs.of(known).ids]))

    def count_ready(self, topics: Sequence[str]) -> int:
        """Return how many messages of these topics are ready."""
        return int(self._value(COUNT_READY, [list(topics)]))

    def sign_on(self, version: str, topics: Sequence[str], rows: int) -> None:
        """Enter the worker into the registry."""
        self.conn.execute(STARTED, [self.worker, socket.gethostname(), os.getpid(), version, list(topics), rows])

    def sign(self, status: dict[str, Any]) -> bool:
        """Give a sign of life; return whether the registry knows the worker."""
        return bool(self._value(SEEN, [self.worker, json.dumps(status)]))

    def says(self, claims: Sequence[int]) -> bool:
        """Return whether the registry says these claims of the worker."""
        return bool(self._value(SAYS, [self.worker, json.dumps(list(claims))]))

    def sign_off(self) -> None:
        """Leave the registry."""
        self.conn.execute(STOPPED, [self.worker])

    def take_name(self, within_s: float) -> bool:
        """Take the worker's name for as long as the connection lasts; return whether it could be had within so many seconds."""
        deadline = time.monotonic() + within_s
        while not self._value(NAME_LOCK, [self.worker]):
            if time.monotonic() > deadline:
                return False
            time.sleep(NAME_AGAIN_S)
        return True

    def holder(self) -> tuple[str, int] | None:
        """Return host and process of who works under this name, as the registry has it."""
        return self.conn.execute(HOLDER, [self.worker]).fetchone()

    def _value(self, query: str, values: Any) -> Any:
        row = self.conn.execute(query.encode(), values).fetchone()
        return None if row is None else row[0]
