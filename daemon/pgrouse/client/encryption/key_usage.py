"""Which keys the messages in the database need, from a bounded number of rows. Reading this needs no key."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls.dead import dead_topics
from pgrouse.client.queries import encrypted_message
from pgrouse.crypto import envelope
from pgrouse.crypto.envelope import EnvelopeHeader

PAGE = 5000


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """A message that has not ended: what of it is encrypted.

    Attributes:
        headers: of its body and its checkpoint; none if nothing of it is encrypted.
        size: of its body, in bytes.
    """

    id: int
    topic: str
    is_running: bool
    headers: tuple[EnvelopeHeader, ...]
    size: int


@dataclass(slots=True)
class KeyUse:
    """How many messages need one key."""

    key: str
    fingerprint: bytes
    waiting: int = 0
    running: int = 0
    dead: int = 0


@dataclass(slots=True)
class KeyUsage:
    """Which keys are needed by how many messages.

    Attributes:
        uses: by name and fingerprint.
        saw_all: whether every message that has not ended was read.
        saw_all_dead: whether every dead one was.
    """

    uses: dict[tuple[str, bytes], KeyUse] = field(default_factory=dict)
    saw_all: bool = True
    saw_all_dead: bool = True

    def of(self, header: EnvelopeHeader) -> KeyUse:
        """Return the use of the key of an envelope."""
        return self.uses.setdefault((header.key, header.fingerprint), KeyUse(header.key, header.fingerprint))


def read_key_usage(conn: psycopg.Connection[Any], most: int) -> KeyUsage:
    """Read at most this many messages that have not ended, the oldest first, and as many dead ones.

    The stored results of their steps are read with them.
    """
    usage = KeyUsage()
    looked = 0
    for page in pages(conn, most):
        looked += len(page)
        steps = _of_steps(conn, [each.id for each in page])
        for each in page:
            headers = (*each.headers, *steps.get(each.id, ()))
            for header in {(h.key, h.fingerprint): h for h in headers}.values():
                use = usage.of(header)
                use.running += each.is_running
                use.waiting += not each.is_running
    usage.saw_all = looked < most
    topics = run(conn, dead_topics())
    dead = run(conn, encrypted_message.find_dead(topics, most))
    usage.saw_all_dead = len(dead) < most
    for row in dead:
        for header in {(h.key, h.fingerprint): h for h in _headers(*row)}.values():
            usage.of(header).dead += 1
    return usage


def pages(conn: psycopg.Connection[Any], most: int | None = None) -> Iterator[list[LiveMessage]]:
    """Yield the messages that have not ended, page by page in the order of the ids. most: the limit of messages."""
    after, left = 0, most
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        rows = run(conn, encrypted_message.find_live(after, size))
        if rows:
            yield [
                LiveMessage(i, topic, runs, _headers(header, state), size or 0)
                for i, topic, runs, header, state, size in rows
            ]
        if len(rows) < size:
            return
        after = rows[-1][0]
        left = None if left is None else left - len(rows)


def _of_steps(conn: psycopg.Connection[Any], ids: list[int]) -> dict[int, list[EnvelopeHeader]]:
    """Return the envelope headers of the steps of these messages, by message id."""
    found: dict[int, list[EnvelopeHeader]] = {}
    for message_id, state in run(conn, encrypted_message.find_steps(ids)):
        if (header := _header_of_state(state)) is not None:
            found.setdefault(message_id, []).append(header)
    return found


def _headers(body: bytes | None, state: str | None) -> tuple[EnvelopeHeader, ...]:
    found = [None if body is None else envelope.read_header(body), _header_of_state(state)]
    return tuple(header for header in found if header is not None)


def _header_of_state(text: str | None) -> EnvelopeHeader | None:
    if text is None:
        return None
    try:
        return envelope.read_header(base64.b64decode(text[: len(text) // 4 * 4]))
    except ValueError:
        return None
