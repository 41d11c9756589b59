"""Which keys the messages in the database need, from a bounded number of rows. Reading this needs no key."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls.dead import dead_topics
from pgrouse.crypto import envelope
from pgrouse.crypto.envelope import DATA, ENCRYPTED_BY, MAX_HEADER_BYTES, EnvelopeHeader

PAGE = 5000
# How many characters of Base64 hold the header of the envelope of a checkpoint.
STATE_HEADER_CHARS = 4 * (MAX_HEADER_BYTES // 3 + 1)
BODY_HEADER = (
    f"CASE WHEN substring({{row}}.body FOR 4) = '\\x93504752' THEN substring({{row}}.body FOR {MAX_HEADER_BYTES}) END"
)
STATE_HEADER = (
    f"CASE WHEN {{row}}.state ? '{ENCRYPTED_BY}' THEN left({{row}}.state ->> '{DATA}', {STATE_HEADER_CHARS}) END"
)
# By the primary key, page by page: a page reads a fixed number of rows, however many messages there are.
WAITING = f"""
  SELECT m.id, m.topic::text, m.claim_id IS NOT NULL, {BODY_HEADER.format(row="m")}, {STATE_HEADER.format(row="m")},
         octet_length(m.body)
  FROM messages.message AS m
  WHERE m.id > %(after)s
  ORDER BY m.id
  LIMIT %(page)s"""  # noqa: S608 - constants only
# One row per message and key: by the name of the key and the part of the envelope with its fingerprint.
STEPS = f"""
  SELECT DISTINCT ON (s.message_id, s.result ->> '{ENCRYPTED_BY}', left(s.result ->> '{DATA}', 21))
    s.message_id, left(s.result ->> '{DATA}', {STATE_HEADER_CHARS})
  FROM messages.step AS s
  WHERE s.message_id = ANY (%s) AND s.result ? '{ENCRYPTED_BY}'"""  # noqa: S608 - constants only
DEAD = f"""
  SELECT d.header, d.state
  FROM unnest(%(topics)s::text[]) AS t (topic)
  CROSS JOIN LATERAL (
    SELECT {BODY_HEADER.format(row="a")} AS header, {STATE_HEADER.format(row="a")} AS state
    FROM messages.message_archive AS a
    WHERE a.result NOT IN ('success', 'cancelled') AND a.topic = t.topic COLLATE "C"
    ORDER BY a.archived_at DESC, a.id DESC
    LIMIT %(most)s
  ) AS d
  LIMIT %(most)s"""  # noqa: S608 - constants only


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
    dead = conn.execute(DEAD.encode(), {"topics": run(conn, dead_topics()), "most": most}).fetchall()
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
        rows = conn.execute(WAITING.encode(), {"after": after, "page": size}).fetchall()
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
    for message_id, state in conn.execute(STEPS.encode(), [ids]):
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
