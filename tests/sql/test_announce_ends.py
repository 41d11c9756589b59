"""messages.announce_ends: what ends is noted for those to whom it matters, and for nobody else."""

from __future__ import annotations

from tests.sql.queue import Queue, Row


def noted(queue: Queue, ids: list[int], result: str, isolation: str = "READ COMMITTED") -> list[Row]:
    """Return what is noted while the transaction is open: at its commit it is passed on."""
    queue.conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    queue.call("announce_ends", ids, result)
    rows = [tuple(row) for row in queue.rows("SELECT id, result FROM messages.end_event ORDER BY id")]
    queue.conn.execute("ROLLBACK")
    return rows


def test_only_those_before_others_and_those_that_wait_are_noted(queue: Queue) -> None:
    first, apart = queue.publish_many(2)
    last = queue.send(after=[first]).id

    assert noted(queue, [first, apart, last], "failed") == [(first, "failed"), (last, "failed")]


def test_above_read_committed_every_one_is(queue: Queue) -> None:
    assert noted(queue, [queue.publish()], "success", "REPEATABLE READ") != []


def test_the_steps_of_dead_messages_stay_and_those_of_others_go(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.step SELECT n, 's', '1', 1 FROM generate_series(1, 3) AS n")

    queue.call("announce_ends", [1], "success")
    queue.call("announce_ends", [2], "cancelled")
    queue.call("announce_ends", [3], "failed")

    assert [row.message_id for row in queue.rows("SELECT message_id FROM messages.step")] == [3]
