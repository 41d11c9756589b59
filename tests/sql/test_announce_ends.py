"""messages.announce_ends: ends are recorded only for messages that have successors or waiters."""

from __future__ import annotations

from tests.sql.queue import Queue, Row


def recorded(queue: Queue, ids: list[int], result: str, isolation: str = "READ COMMITTED") -> list[Row]:
    """Return the events that are recorded while the transaction is open: they are propagated at its commit."""
    queue.conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    queue.call("announce_ends", ids, result)
    rows = [tuple(row) for row in queue.rows("SELECT id, result FROM messages.end_event ORDER BY id")]
    queue.conn.execute("ROLLBACK")
    return rows


def test_only_messages_with_successors_or_waiters_are_recorded(queue: Queue) -> None:
    first, apart = queue.publish_many(2)
    last = queue.send(after=[first]).id

    assert recorded(queue, [first, apart, last], "failed") == [(first, "failed"), (last, "failed")]


def test_above_read_committed_every_end_is_recorded(queue: Queue) -> None:
    assert recorded(queue, [queue.publish()], "success", "REPEATABLE READ") != []


def test_steps_of_dead_messages_stay_and_those_of_others_are_deleted(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.step SELECT n, 's', '1', 1 FROM generate_series(1, 3) AS n")

    queue.call("announce_ends", [1], "success")
    queue.call("announce_ends", [2], "cancelled")
    queue.call("announce_ends", [3], "failed")

    assert [row.message_id for row in queue.rows("SELECT message_id FROM messages.step")] == [3]
