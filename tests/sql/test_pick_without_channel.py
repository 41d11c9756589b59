"""messages.pick_without_channel: the next ready rows of one topic without a channel, over its priorities."""

from __future__ import annotations

from typing import Any

from tests.sql.queue import Queue

PICK = """
    SELECT m.id
    FROM messages.pick_without_channel(messages.claim_policy('t', messages.now()), messages.now(), %s, 1000000, %s) AS p
    CROSS JOIN unnest(p.rows) WITH ORDINALITY AS r (ctid, nth)
    JOIN messages.message AS m ON m.ctid = r.ctid
    ORDER BY r.nth
"""


def pick(queue: Queue, limit: int = 9, marks: bool = True) -> list[Any]:
    return [row.id for row in queue.rows(PICK, [limit, marks])]


def mark(queue: Queue, priority: int, at: str) -> None:
    queue.conn.execute("INSERT INTO messages.low_water (topic, priority, at) VALUES ('t', %s, %s)", [priority, at])


def test_it_walks_over_the_priorities_until_the_limit_is_reached(queue: Queue) -> None:
    low, high, middle = queue.publish(priority=9), queue.publish(priority=0), queue.publish(priority=5)

    assert pick(queue, 2) == [high, middle]
    assert pick(queue, 9) == [high, middle, low]


def test_a_priority_with_a_mark_hides_none_without(queue: Queue) -> None:
    mark(queue, 5, "2026-01-01")
    published = [queue.publish(priority=p) for p in (0, 4, 5, 6, 9)]

    assert pick(queue) == published


def test_it_reads_from_the_mark_on(queue: Queue) -> None:
    mark(queue, 5, "2026-01-02")
    queue.publish(available_at="2026-01-01")
    above = queue.publish(available_at="2026-01-02")

    assert pick(queue) == [above]


def test_without_marks_it_reads_from_the_left_edge(queue: Queue) -> None:
    mark(queue, 5, "2026-01-02")
    below = queue.publish(available_at="2026-01-01")

    assert pick(queue, marks=False) == [below]


def test_each_priority_that_it_took_from_is_recorded(queue: Queue) -> None:
    for priority in (2, 7):
        queue.publish(priority=priority)
    queue.publish(priority=9, wait="1 hour")

    pick(queue)

    assert [row.priority for row in queue.rows("SELECT priority FROM messages.low_water ORDER BY 1")] == [2, 7]
