"""A message as a worker holds it: one row of `messages.claim`."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any, NamedTuple


class Message(NamedTuple):
    """What one claim returned for one message, column by column as in the SQL type `messages.claimed`.

    JSON is still text: it is decoded for each message alone, so that a value that Python cannot hold harms no other
    message.
    """

    id: int
    claim_id: int
    topic: str
    channel: str | None
    key: str | None
    priority: int
    attempt: int
    max_attempts: int | None
    payload: str | None
    body: bytes | None
    headers: str | None
    state: str | None
    lock_duration_s: float
    timeout_s: float | None
    waited_s: float
    elapsed_s: float
    runs: int = 1
    batch_id: int | None = None

    def with_contents(self, held: Message) -> Message:
        """Return this message with the contents of one that was read once more."""
        return self._replace(payload=held.payload, body=held.body, headers=held.headers, state=held.state)


# What is selected of the functions that return messages.
COLUMNS = ", ".join(f"f.{name}" for name in Message._fields)
WIDTH = len(Message._fields)
ID, CLAIM_ID = itemgetter(Message._fields.index("id")), itemgetter(Message._fields.index("claim_id"))


def read_messages(rows: list[tuple[Any, ...]]) -> list[Message]:
    """Read rows that begin with these columns."""
    # As `Message._make` does, in half of the time.
    new = tuple.__new__
    return [new(Message, row[:WIDTH]) for row in rows]


def claim_refs(messages: Iterable[Message]) -> tuple[list[int], list[int]]:
    """Return the ids and the claims of messages: what every function takes that settles or extends."""
    held = list(messages)
    return list(map(ID, held)), list(map(CLAIM_ID, held))
