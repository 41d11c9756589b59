"""A message as a worker holds it: one row of `messages.claim`."""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """What one claim returned for one message, column by column as in the SQL type `messages.claimed`.

    JSON is still text: it is decoded for each message alone, so that a value that Python cannot hold harms no other message.
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
