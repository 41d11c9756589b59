"""States of the database for commands: dead messages, workers."""

from __future__ import annotations

from tests.sql.queue import Queue


def die(queue: Queue, *topics: str, age: str = "0", result: str = "fail", error: str = "boom") -> list[int]:
    """Publish a message for each topic and let it end badly, the given time ago; return the ids."""
    ids = [queue.publish(topic) for topic in topics]
    for topic in topics:
        queue.settle(result, queue.claim(topic), [error])
    queue.conn.execute(
        "UPDATE messages.message_archive SET archived_at = archived_at - %s::interval WHERE id = ANY (%s)", [age, ids]
    )
    return ids


def start(queue: Queue, name: str, *topics: str, host: str = "h1") -> None:
    """Add a worker to the registry."""
    queue.call("register_worker", name, host, 4121, "0.1.0", list(topics), 100)


def silence(queue: Queue, name: str, seconds: int) -> None:
    """Set the time of a worker's last heartbeat."""
    queue.conn.execute(
        "UPDATE messages.worker SET seen_at = seen_at - %s * interval '1 s' WHERE name = %s", [seconds, name]
    )
