"""Which keys what stands in the database needs, as far as a bounded look tells. It needs no key itself."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

from pgrouse.crypto import envelope
from pgrouse.crypto.envelope import DATA, MARK, MOST_HEAD, Head

PAGE = 5000
# Of a checkpoint so many characters of Base64 hold the head of its envelope.
STATE_CHARS = 4 * (MOST_HEAD // 3 + 1)
HEAD = f"CASE WHEN substring({{row}}.body FOR 4) = '\\x93504752' THEN substring({{row}}.body FOR {MOST_HEAD}) END"
STATE = f"CASE WHEN {{row}}.state ? '{MARK}' THEN left({{row}}.state ->> '{DATA}', {STATE_CHARS}) END"
# By the primary key, page by page: whatever there is of it, a page reads so many rows and no more.
WAITING = f"""
  SELECT m.id, m.topic::text, m.claim_id IS NOT NULL, {HEAD.format(row="m")}, {STATE.format(row="m")}, octet_length(m.body)
  FROM messages.message AS m
  WHERE m.id > %(after)s
  ORDER BY m.id
  LIMIT %(page)s"""  # noqa: S608 - constants only
# Of each message one for each key: of its name, and of as much of the envelope as has the fingerprint.
STEPS = f"""
  SELECT DISTINCT ON (s.message_id, s.result ->> '{MARK}', left(s.result ->> '{DATA}', 21))
    s.message_id, left(s.result ->> '{DATA}', {STATE_CHARS})
  FROM messages.step AS s
  WHERE s.message_id = ANY (%s) AND s.result ? '{MARK}'"""  # noqa: S608 - constants only
DEAD = f"""
  SELECT d.head, d.state
  FROM messages.dead_topics() AS t (topic)
  CROSS JOIN LATERAL (
    SELECT {HEAD.format(row="a")} AS head, {STATE.format(row="a")} AS state
    FROM messages.message_archive AS a
    WHERE a.result NOT IN ('success', 'cancelled') AND a.topic = t.topic COLLATE "C"
    ORDER BY a.archived_at DESC, a.id DESC
    LIMIT %(most)s
  ) AS d
  LIMIT %(most)s"""  # noqa: S608 - constants only


@dataclass(frozen=True, slots=True)
class Standing:
    """A message that has not ended, as far as it is encrypted.

    Attributes:
        heads: of its body and its checkpoint; none if nothing of it is encrypted.
        size: of its body, in bytes.
    """

    id: int
    topic: str
    is_running: bool
    heads: tuple[Head, ...]
    size: int


@dataclass(slots=True)
class Need:
    """What needs one key."""

    key: str
    fingerprint: bytes
    waiting: int = 0
    running: int = 0
    dead: int = 0


@dataclass(slots=True)
class Census:
    """Who needs which keys.

    Attributes:
        needs: by name and fingerprint.
        saw_all: whether every message that has not ended was looked at.
        saw_all_dead: whether every dead one was.
    """

    needs: dict[tuple[str, bytes], Need] = field(default_factory=dict)
    saw_all: bool = True
    saw_all_dead: bool = True

    def of(self, head: Head) -> Need:
        """Return what needs the key of an envelope."""
        return self.needs.setdefault((head.key, head.fingerprint), Need(head.key, head.fingerprint))


def take(conn: psycopg.Connection[Any], most: int) -> Census:
    """Look at so many messages that have not ended, the oldest first, with the kept results of their steps, and at so many dead ones."""
    census = Census()
    looked = 0
    for page in pages(conn, most):
        looked += len(page)
        steps = _of_steps(conn, [each.id for each in page])
        for each in page:
            heads = (*each.heads, *steps.get(each.id, ()))
            for head in {(h.key, h.fingerprint): h for h in heads}.values():
                need = census.of(head)
                need.running += each.is_running
                need.waiting += not each.is_running
    census.saw_all = looked < most
    dead = conn.execute(DEAD.encode(), {"most": most}).fetchall()
    census.saw_all_dead = len(dead) < most
    for row in dead:
        for head in {(h.key, h.fingerprint): h for h in _heads(*row)}.values():
            census.of(head).dead += 1
    return census


def pages(conn: psycopg.Connection[Any], most: int | None = None) -> Iterator[list[Standing]]:
    """Yield what has not ended, page by page in the order of the ids. most: so many messages, then stop."""
    after, left = 0, most
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        rows = conn.execute(WAITING.encode(), {"after": after, "page": size}).fetchall()
        if rows:
            yield [
                Standing(i, topic, runs, _heads(head, state), size or 0) for i, topic, runs, head, state, size in rows
            ]
        if len(rows) < size:
            return
        after = rows[-1][0]
        left = None if left is None else left - len(rows)


def _of_steps(conn: psycopg.Connection[Any], ids: list[int]) -> dict[int, list[Head]]:
    """Return the heads of what steps of these messages left, by the message."""
    found: dict[int, list[Head]] = {}
    for message_id, state in conn.execute(STEPS.encode(), [ids]):
        if (head := _head_of_state(state)) is not None:
            found.setdefault(message_id, []).append(head)
    return found


def _heads(body: bytes | None, state: str | None) -> tuple[Head, ...]:
    found = [None if body is None else envelope.read(body), _head_of_state(state)]
    return tuple(head for head in found if head is not None)


def _head_of_state(text: str | None) -> Head | None:
    if text is None:
        return None
    try:
        return envelope.read(base64.b64decode(text[: len(text) // 4 * 4]))
    except ValueError:
        return None
