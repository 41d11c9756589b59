"""Encrypts waiting messages again under the current key, in bounded batches, while daemons go on working.

Running messages are left alone, and so are those that are claimed or changed between the read and the write.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls.operate import reencrypt
from pgrouse.client.encryption import key_usage
from pgrouse.client.queries.encrypted_message import read_waiting
from pgrouse.crypto import envelope
from pgrouse.errors import DecryptionFailed, EncryptionKeyMissing

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher

BATCH, BATCH_BYTES = 200, 16 * 1024 * 1024


@dataclass(slots=True)
class RotationResult:
    """The result of a rotation.

    Attributes:
        done: encrypted by the current key now.
        left: running, or claimed or changed in the meantime; the next run finds them.
        missing: how many messages need a key that is not known here, by key.
        broken: the ids of messages that no key can decrypt.
    """

    done: int = 0
    left: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    broken: list[int] = field(default_factory=list)

    def add(self, other: RotationResult) -> None:
        """Add another result."""
        self.done += other.done
        self.left += other.left
        self.missing.update(other.missing)
        self.broken += other.broken


def rotate(
    conn: psycopg.Connection[Any], cipher: Cipher, topic: str | None = None, *, dead_letters: bool = False
) -> Iterator[RotationResult]:
    """Encrypt waiting messages again under the current key; yield the result of each batch.

    Each batch is its own transaction.

    Args:
        conn: in autocommit mode, with the rights of an operator.
        cipher: has the old keys and the current one.
        topic: only this topic; None = all.
        dead_letters: also the copies that wait in `.dlq` topics.
    """
    for page in key_usage.pages(conn):
        due = [each for each in page if _is_due(each, cipher, topic, dead_letters)]
        running = sum(each.is_running for each in due)
        if running:
            yield RotationResult(left=running)
        for batch in _batches([each for each in due if not each.is_running]):
            yield _reencrypt_batch(conn, cipher, batch)


def _is_due(each: key_usage.LiveMessage, cipher: Cipher, topic: str | None, dead_letters: bool) -> bool:
    if topic is not None and each.topic != topic:
        return False
    if each.topic.endswith(".dlq") and not dead_letters:
        return False
    return any(not cipher.is_current(header) for header in each.headers)


def _batches(due: Sequence[key_usage.LiveMessage]) -> Iterator[list[int]]:
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


def _reencrypt_batch(conn: psycopg.Connection[Any], cipher: Cipher, ids: list[int]) -> RotationResult:
    rotated = RotationResult()
    rows = run(conn, read_waiting(ids))
    reencrypted = []
    for row in rows:
        try:
            reencrypted.append(_reencrypted_row(cipher, *row))
        except EncryptionKeyMissing as missing:
            rotated.missing[missing.key] += 1
        except DecryptionFailed:
            rotated.broken.append(row[0])
    if reencrypted:
        chosen, seen, bodies, states = map(list, zip(*reencrypted, strict=True))
        rotated.done = len(run(conn, reencrypt(chosen, seen, bodies, states, cipher.current)))
    rotated.left = len(ids) - rotated.done - sum(rotated.missing.values()) - len(rotated.broken)
    return rotated


def _reencrypted_row(
    cipher: Cipher, message_id: int, topic: str, body: bytes | None, state: str | None
) -> tuple[int, str, bytes | None, str | None]:
    """Return a message's id, what was seen of it, and its body and checkpoint if they are new."""
    seen = hashlib.md5((_md5(body) + _md5(None if state is None else state.encode())).encode(), usedforsecurity=False)
    fresh_body = body if body is not None and envelope.read_header(body) is not None else None
    encrypted_state = envelope.from_json(state)
    return (
        message_id,
        seen.hexdigest(),
        None if fresh_body is None else cipher.reencrypt(fresh_body),
        None if encrypted_state is None else envelope.to_json(cipher.reencrypt(encrypted_state), cipher.current),
    )


def _md5(data: bytes | None) -> str:
    return "" if data is None else hashlib.md5(data, usedforsecurity=False).hexdigest()
