"""messages.lower_depth: messages that end make room."""

from __future__ import annotations

from tests.sql.queue import Queue

LOWER = "SELECT messages.lower_depth(%s)"


def test_each_topic_is_lowered_by_what_ended_of_it(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.depth VALUES ('a', 10), ('b', 10), ('c', 10)")

    queue.rows(LOWER, [["b", "a", "b", "nobody"]])

    assert queue.rows("SELECT * FROM messages.depth ORDER BY topic") == [("a", 9), ("b", 8), ("c", 10)]


def test_a_counter_that_began_too_low_stops_at_zero(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.depth VALUES ('a', 1)")

    queue.rows(LOWER, [["a", "a"]])

    assert queue.value("SELECT rows FROM messages.depth") == 0
