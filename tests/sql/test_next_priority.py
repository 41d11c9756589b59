"""messages.next_priority: the walk over one topic's messages without a channel."""

from __future__ import annotations

from typing import Any

from tests.sql.queue import Queue

NEXT = "SELECT priority, low = '-infinity' AS from_the_edge FROM messages.next_priority('t', %s::smallint, %s)"


def walk(queue: Queue, marks: bool = True) -> list[Any]:
    found, after = [], -1
    while (step := queue.row(NEXT, [after, marks])).priority is not None:
        found.append(tuple(step))
        after = step.priority
    return found


def test_it_visits_each_priority_from_the_left_edge(queue: Queue) -> None:
    for priority in (9, 0, 5, 5):
        queue.publish(priority=priority)
    queue.publish("u", priority=3)
    queue.publish(priority=4, channel="c")

    assert walk(queue) == [(0, True), (5, True), (9, True)]


def test_a_marked_priority_is_visited_from_its_mark(queue: Queue) -> None:
    for priority in (0, 5, 9):
        queue.publish(priority=priority)
    queue.conn.execute(
        "INSERT INTO messages.low_water VALUES ('t', 5, '2026-01-01'), ('t', 7, '2026-01-01'), ('t', 9, NULL)"
    )

    assert walk(queue) == [(0, True), (5, False), (7, False), (9, True)]


def test_without_marks_it_checks_each_priority(queue: Queue) -> None:
    queue.publish(priority=5)
    queue.conn.execute("INSERT INTO messages.low_water VALUES ('t', 5, '2026-01-01'), ('t', 7, '2026-01-01')")

    assert walk(queue, marks=False) == [(5, True)]


def test_a_topic_without_messages_has_no_priority(queue: Queue) -> None:
    assert walk(queue) == []
