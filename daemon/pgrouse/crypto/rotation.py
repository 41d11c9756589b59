"""Puts what waits under the current key, in bounded batches, while daemons go on working.

A message that runs is left alone, and so is one that is claimed, or changed by anybody, between the look and the write.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

from pgrouse.crypto import envelope

from pgrouse.crypto import key_usage as census
from pgrouse.errors import DecryptionFailed, KeyMissing

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher

BATCH, BATCH_BYTES = 200, 16 * 1024 * 1024
READ = b"""
  SELECT m.id, m.topic::text, m.body::bytea, m.state::text
  FROM messages.message AS m WHERE m.id = ANY (%s::bigint[]) AND m.claim_id IS NULL"""
RESEAL = b"SELECT messages.reseal(%s::bigint[], %s::text[], %s::bytea[], %s::text[]::jsonb[], %s)"


@dataclass(slots=True)
class Rotated:
    """What became of some messages that were under another key.

    Attributes:
        done: under the current key now.
        left: run, or were claimed or changed meanwhile; the next run finds them.
        missing: by key: how many need one that is not here.
        broken: the ids of those that no key opens.
    """

    done: int = 0
    left: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    broken: list[int] = field(default_factory=list)

    def add(self, other: Rotated) -> None:
        """Take in what became of others."""
        self.done += other.done
        self.left += other.left
        self.missing.update(other.missing)
        self.broken += other.broken


def rotate(
    conn: psycopg.Connection[Any], cipher: Cipher, topic: str | None = None, *, dead_letters: bool = False
) -> Iterator[Rotated]:
    """Put what waits under the current key; yield what became of each batch, which is a transaction of its own.

    Args:
        conn: in autocommit mode, with the rights of an operator.
        cipher: has the old keys and the current one.
        topic: of this topic only; None = of all.
        dead_letters: also the copies that wait in topics that end with `.dlq`.
    """
    for page in census.pages(conn):
        due = [each for each in page if _is_due(each, cipher, topic, dead_letters)]
        running = sum(each.is_running for each in due)
        if running:
            yield Rotated(left=running)
        for batch in _batches([each for each in due if not each.is_running]):
            yield _renew(conn, cipher, batch)


def _is_due(each: census.Standing, cipher: Cipher, topic: str | None, dead_letters: bool) -> bool:
    if topic is not None and each.topic != topic:
        return False
    if each.topic.endswith(".dlq") and not dead_letters:
        return False
    return any(not cipher.is_current(head) for head in each.heads)


def _batches(due: Sequence[census.Standing]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for each in due:
        if batch and (len(batch) >= BATCH or size + each.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each.id)
        size += each.size
    if batch:
        yield batch


def _renew(conn: psycopg.Connection[Any], cipher: Cipher, ids: list[int]) -> Rotated:
    rotated = Rotated()
    rows = conn.cursor(binary=True).execute(READ, [ids]).fetchall()
    renewed = []
    for row in rows:
        try:
            renewed.append(_renewed(cipher, *row))
        except KeyMissing as missing:
            rotated.missing[missing.key] += 1
        except DecryptionFailed:
            rotated.broken.append(row[0])
    if renewed:
        found: Any = conn.execute(RESEAL, [*map(list, zip(*renewed, strict=True)), cipher.current]).fetchone()
        rotated.done = len(found[0])
    rotated.left = len(ids) - rotated.done - sum(rotated.missing.values()) - len(rotated.broken)
    return rotated


def _renewed(
    cipher: Cipher, message_id: int, topic: str, body: bytes | None, state: str | None
) -> tuple[int, str, bytes | None, str | None]:
    """Return a message's id, what was seen of it, and its body and checkpoint if they are new."""
    seen = hashlib.md5((_md5(body) + _md5(None if state is None else state.encode())).encode(), usedforsecurity=False)
    fresh_body = body if body is not None and envelope.read(body) is not None else None
    sealed_state = envelope.of_json(state)
    return (
        message_id,
        seen.hexdigest(),
        None if fresh_body is None else cipher.renewed(fresh_body),
        None if sealed_state is None else envelope.as_json(cipher.renewed(sealed_state), cipher.current),
    )


def _md5(data: bytes | None) -> str:
    return "" if data is None else hashlib.md5(data, usedforsecurity=False).hexdigest()
