"""A listener outside the daemons, like an operator's.

It listens to the NOTIFY channel `dead_message` and reads the outbox `messages.alert`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

# Rows get their numbers before they are committed: a lower number may become visible later.
LATE = 1000


@dataclass(frozen=True)
class Alert:
    """One row of the outbox: messages of one topic that died for the same reason, in one statement."""

    id: int
    topic: str
    result: str
    count: int
    message_id: int
    error: str

    def __str__(self) -> str:
        more = "" if self.count == 1 else f" and {self.count - 1:,} more"
        # The last line of an error is its message. For an expired lock it adds nothing.
        why = "" if self.result == "lock_expired" else f" ({self.error.strip().rpartition(chr(10))[2]:.60})"
        return f"{self.message_id}{more}, {self.topic}, {self.result}{why}"


class AlertFeed:
    """The alerts that were received so far.

    Args:
        conn: an autocommit connection for this purpose only.

    Attributes:
        notifications: how many came.
        received: the alerts that they led to, by id.
    """

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        self.notifications = 0
        self.received: dict[int, Alert] = {}
        conn.execute("LISTEN dead_message")

    def read_new(self) -> list[Alert]:
        """Read the notifications that have arrived, without waiting; return the new alerts."""
        came = list(self._conn.notifies(timeout=0))
        self.notifications += len(came)
        return self._read() if came else []

    def _read(self) -> list[Alert]:
        rows = self._conn.execute(
            """
            SELECT a.id, a.topic, a.result, a.count, a.first_message_id, coalesce(a.sample_error, '')
            FROM messages.alert AS a
            WHERE a.kind = 'dead_message' AND a.id > %s
            ORDER BY a.id
            """,
            [max(self.received, default=0) - LATE],
        )
        new = [Alert(*row) for row in rows if row[0] not in self.received]
        self.received |= {each.id: each for each in new}
        return new
