"""Dead messages, for the tests of what happens to them afterwards."""

from __future__ import annotations

from typing import Any

from tests.sql.queue import Queue, Row


def die(queue: Queue, topic: str = "t", error: str = "boom", settle: str = "fail", **columns: Any) -> int:
    """Publish a message, end it with another result than success, and return its id."""
    published = queue.publish(topic, **columns)
    (claimed,) = (c for c in queue.claim(topic) if c.id == published)
    queue.settle(settle, [claimed], [error])
    return published


def die_ago(queue: Queue, ago: str, topic: str = "t", error: str = "boom", **columns: Any) -> int:
    """The same, but the message ended so long ago."""
    died = die(queue, topic, error, **columns)
    queue.conn.execute(
        "UPDATE messages.message_archive SET archived_at = archived_at - %s::interval WHERE id = %s", [ago, died]
    )
    return died


def copy_of(queue: Queue, died: int) -> Row:
    """Return the live copy of a dead message in its .dlq topic; None if it has none."""
    return queue.row("SELECT * FROM messages.message WHERE origin_id = %s AND dlq_moved_at IS NOT NULL", [died])


def outcomes(queue: Queue, function: str, *arguments: Any) -> dict[int, str]:
    """Return the outcome of each message that a redrive function was called for, by the id that comes first."""
    holes = ", ".join(["%s"] * len(arguments))
    return {row[0]: row.outcome for row in queue.rows(f"SELECT * FROM messages.{function}({holes})", arguments)}
