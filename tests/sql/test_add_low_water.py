"""messages.add_low_water: the list of (topic, priority) pairs that have low-water marks."""

from __future__ import annotations

from typing import Any

from tests.sql.queue import Queue


def add(queue: Queue, priority: int = 5) -> None:
    queue.conn.execute("SELECT messages.add_low_water('t', %s::smallint)", [priority])


def entries(queue: Queue) -> list[Any]:
    return [tuple(row) for row in queue.rows("SELECT topic, priority, at FROM messages.low_water ORDER BY 1, 2")]


def test_a_new_entry_has_no_mark(queue: Queue) -> None:
    add(queue)

    assert entries(queue) == [("t", 5, None)]


def test_an_existing_entry_keeps_its_mark(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.low_water (topic, priority, at) VALUES ('t', 5, '2026-01-01')")

    add(queue)

    assert queue.value("SELECT at = '2026-01-01' FROM messages.low_water") is True


def test_a_claim_does_not_wait_for_another_one_that_adds_an_entry(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        add(queue)

        other.conn.execute("SET lock_timeout = '1s'")
        add(other)
        add(other, 6)

    assert entries(queue) == [("t", 5, None)]


def test_a_claim_from_channels_adds_one_entry_for_all_of_them(queue: Queue) -> None:
    for channel in "ab":
        for priority in (0, 5):
            queue.publish(channel=channel, priority=priority)

    queue.claim()

    assert entries(queue) == [("t", -1, None)]
